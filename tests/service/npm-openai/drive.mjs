// Drives OpenAI's npm client and the AI SDK's provider against the service whose address is the first argument, and
// prints what they show as one JSON object.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const [, , url, what] = process.argv;
const weather = {
  type: "function",
  name: "weather",
  description: "The weather in a city.",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false },
  strict: true,
};
const pixel = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7";

async function collect(stream) {
  const seen = [];
  for await (const event of stream) seen.push(event);
  return seen;
}

const scenes = {
  async client() {
    const api = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
    const first = await api.responses.create({ model: "scripted", input: "Hi" });
    const events = await collect(
      await api.responses.create({ model: "scripted", input: "More", previous_response_id: first.id, stream: true }),
    );
    const background = await api.responses.create({ model: "scripted", input: "Long", background: true });
    let polled = background;
    while (polled.status === "queued" || polled.status === "in_progress") polled = await api.responses.retrieve(background.id);
    const resumed = await collect(await api.responses.retrieve(background.id, { stream: true, starting_after: 2 }));
    const image = await api.responses.create({
      model: "scripted",
      input: [{ role: "user", content: [{ type: "input_text", text: "See" }, { type: "input_image", image_url: pixel, detail: "auto" }] }],
    });
    const conversation = await api.conversations.create({ items: [{ type: "message", role: "user", content: "Hello" }], metadata: { a: "b" } });
    await api.responses.create({ model: "scripted", input: "And?", conversation: conversation.id });
    const items = await collect(api.conversations.items.list(conversation.id, { limit: 2, order: "asc" }));
    await api.conversations.items.delete(items[0].id, { conversation_id: conversation.id });
    const left = await collect(api.conversations.items.list(conversation.id));
    const input = await collect(api.responses.inputItems.list(image.id));
    await api.responses.delete(first.id);
    const gone = await api.responses.retrieve(first.id).catch((error) => error.constructor.name);
    await api.conversations.delete(conversation.id);
    const chat = await api.chat.completions.create({ model: "scripted", messages: [{ role: "user", content: "Hi" }] });
    const chunks = await collect(await api.chat.completions.create({ model: "scripted", messages: [{ role: "user", content: "Hi" }], stream: true }));
    return {
      text: first.output_text,
      events: events.map((event) => event.type),
      numbers: events.map((event) => event.sequence_number),
      polled: [polled.status, polled.output_text],
      resumed: resumed.map((event) => event.sequence_number),
      items: items.map((item) => item.role),
      left: left.length,
      input: input.map((item) => item.content.map((part) => part.type)),
      gone,
      chat: chat.choices[0].message.content,
      chunks: chunks.map((chunk) => chunk.choices[0].delta.content ?? "").join(""),
    };
  },
  async parse() {
    const api = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
    const format = zodTextFormat(z.object({ name: z.string() }), "city");
    const made = await api.responses.parse({ model: "scripted", input: "Where?", text: { format } });
    return { parsed: made.output_parsed };
  },
  async tools() {
    const api = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
    const asked = await api.responses.create({ model: "scripted", input: "Rain?", tools: [weather] });
    const [call] = asked.output;
    const output = [{ type: "function_call_output", call_id: call.call_id, output: "rain" }];
    const told = await api.responses.create({ model: "scripted", input: output, previous_response_id: asked.id, tools: [weather] });
    return { call: [call.name, call.arguments], told: told.output_text };
  },
  // One tool step, then another question, with the whole conversation sent back each time.
  async provider() {
    const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
    const tools = {
      weather: tool({ description: "The weather.", inputSchema: z.object({ city: z.string() }), execute: async () => "rain" }),
    };
    const messages = [{ role: "user", content: "Rain?" }];
    const first = await generateText({ model: openai.responses("scripted"), messages, tools, stopWhen: stepCountIs(3), maxRetries: 0 });
    messages.push(...first.response.messages, { role: "user", content: "And now?" });
    const second = streamText({ model: openai.responses("scripted"), messages, tools, maxRetries: 0 });
    const text = await second.text;
    const chat = await generateText({ model: openai.chat("scripted"), prompt: "Hi", maxRetries: 0 });
    return { steps: first.steps.length, first: first.text, second: text, chat: chat.text };
  },
};

console.log(JSON.stringify(await scenes[what]()));
