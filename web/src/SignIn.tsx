/** The sign-in form: identity providers, the link that opened the page, or a token, which stays in this tab. */
import { useEffect, useId, useState } from "preact/hooks";
import { linkSecret, loadSignInOptions, openLink, providerHref, signInOptions } from "./access";
import { errorText } from "./api";
import { useCell } from "./cell";
import { isRefused, signIn } from "./session";
import { Mark } from "./ui/icons";

export function SignIn() {
  const options = useCell(signInOptions);
  const link = linkSecret();
  useEffect(loadSignInOptions, []);
  const providers = options?.providers ?? [];
  return (
    <main class="sign-in">
      <div class="stack">
        <Mark />
        <h1>Sign in</h1>
        {link && <LinkForm secret={link} />}
        {providers.map((provider) => (
          <a key={provider.name} class="button button-primary" href={providerHref(provider)}>
            Continue with {provider.title}
          </a>
        ))}
        {link || providers.length ? (
          <details>
            <summary>Use a token</summary>
            <TokenForm isFirst={false} />
          </details>
        ) : (
          <TokenForm isFirst />
        )}
      </div>
    </main>
  );
}

function LinkForm({ secret }: { secret: string }) {
  const [failure, setFailure] = useState("");
  const [isBusy, setBusy] = useState(false);
  const open = () => {
    setBusy(true);
    openLink(secret).catch((error: unknown) => {
      setFailure(errorText(error));
      setBusy(false);
    });
  };
  return (
    <>
      <p>You opened a sign-in link. It works once and only in this browser.</p>
      {failure && (
        <p class="refused" role="alert">
          {failure}
        </p>
      )}
      <button type="button" class="button button-primary" disabled={isBusy} onClick={open}>
        Sign in with the link
      </button>
    </>
  );
}

function TokenForm({ isFirst }: { isFirst: boolean }) {
  const [given, setGiven] = useState("");
  const wasRefused = useCell(isRefused);
  const fieldId = useId();
  return (
    <form
      class="stack"
      onSubmit={(event) => {
        event.preventDefault();
        if (given.trim()) signIn(given.trim());
      }}
    >
      <p>Open the sign-in link that you were given, or paste a token.</p>
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
        autoFocus={isFirst}
        value={given}
        onInput={(event) => setGiven(event.currentTarget.value)}
      />
      <button type="submit" class="button button-primary" disabled={!given.trim()}>
        Sign in
      </button>
      <p class="note">The token is stored until you close this tab.</p>
    </form>
  );
}
