/** Tools that the page runs itself. The service offers them to the agent and passes its calls on to the page. */
import type { useChat } from "@ai-sdk/react";

type AddToolOutput = ReturnType<typeof useChat>["addToolOutput"];

/** Sent with every request: for each tool the JSON Schema of its input. */
export const tools = {
  locate: { description: "Where the user is.", parameters: { type: "object", properties: {} } },
};

/** React runs effects twice in StrictMode; each call gets one output. */
const started = new Set<string>();

export function locate(toolCallId: string, addToolOutput: AddToolOutput) {
  if (started.has(toolCallId)) return;
  started.add(toolCallId);
  const tool = "locate";
  navigator.geolocation.getCurrentPosition(
    ({ coords: { latitude, longitude } }) => void addToolOutput({ tool, toolCallId, output: { latitude, longitude } }),
    ({ message }) => void addToolOutput({ tool, toolCallId, state: "output-error", errorText: message }),
  );
}
