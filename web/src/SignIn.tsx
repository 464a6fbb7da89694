/** Asks for a token when the service wants one. It stays in this tab and is sent in a header, never in an address. */
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
        <p>This service wants to know who you are. Paste the token that you were given.</p>
        {wasRefused && (
          <p class="refused" role="alert">
            That token was not taken. It may have expired.
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
        <p class="note">It is kept until you close this tab.</p>
      </form>
    </main>
  );
}
