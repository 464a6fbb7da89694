/** The sign-in form. The token stays in this tab and is sent in a header, never in a URL. */
import { useId, useState } from "preact/hooks";
import { useCell } from "./cell";
import { isRefused, signIn } from "./session";
import { Mark } from "./ui/icons";

export function SignIn() {
  const [given, setGiven] = useState("");
  const wasRefused = useCell(isRefused);
  const fieldId = useId();
  return (
    <main class="sign-in">
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          if (given.trim()) signIn(given.trim());
        }}
      >
        <Mark />
        <h1>Sign in</h1>
        <p>This service requires a token. Paste yours to sign in.</p>
        {wasRefused && (
          <p class="refused" role="alert">
            This token is not valid. It may have expired.
          </p>
        )}
        <label for={fieldId}>Token</label>
        <input
          id={fieldId}
          type="password"
          autoComplete="off"
          spellcheck={false}
          autoFocus
          value={given}
          onInput={(event) => setGiven(event.currentTarget.value)}
        />
        <button type="submit" class="button button-primary" disabled={!given.trim()}>
          Sign in
        </button>
        <p class="note">The token is stored until you close this tab.</p>
      </form>
    </main>
  );
}
