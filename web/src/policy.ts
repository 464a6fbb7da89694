/** Comes before everything else: zod would compile its checks with `new Function`, which the page's policy forbids. */
import { config } from "zod/v4/core";

config({ jitless: true });
