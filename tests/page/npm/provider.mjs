// An identity provider on a port of its own: signs in whatever account is named, with `devInteractions` as its pages.
// Prints its URL when it listens. Reads lines on standard input: {"callback": "..."} registers where clients return to.
import { createServer } from "node:http";
import Provider from "oidc-provider";

const port = Number(process.argv[2]);
const callback = process.argv[3];
const issuer = `http://localhost:${port}`;
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "threadline",
      client_secret: "a secret of the test & client",
      redirect_uris: [callback],
    },
  ],
  claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name", "groups", "tenant"] },
  cookies: { keys: ["only for tests"] },
  pkce: { required: () => true },
  features: { devInteractions: { enabled: true } },
  async findAccount(_, id) {
    return {
      accountId: id,
      async claims() {
        const [name] = id.split("@");
        return {
          sub: id,
          name: name[0].toUpperCase() + name.slice(1),
          email: id,
          email_verified: true,
          groups: id.startsWith("root") ? ["admins", "staff"] : ["staff"],
          tenant: "local",
        };
      },
    };
  },
});
createServer(provider.callback()).listen(port, "localhost", () => console.log(issuer));
