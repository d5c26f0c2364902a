/**
 * The page without a network: its own files and the bundle's are kept when they were loaded once.
 *
 * Answers also get the headers that threads need, and the policy that the page has: workers take theirs from headers.
 */

declare const FILES: readonly string[];
declare const VERSION: string;

interface ExtendableEvent extends Event {
  waitUntil(promise: Promise<unknown>): void;
}
interface FetchEvent extends ExtendableEvent {
  readonly request: Request;
  respondWith(response: Promise<Response>): void;
}
interface Scope {
  readonly location: Location;
  addEventListener(type: "install" | "activate", listener: (event: ExtendableEvent) => void): void;
  addEventListener(type: "fetch", listener: (event: FetchEvent) => void): void;
  skipWaiting(): Promise<void>;
  readonly clients: { claim(): Promise<void> };
}

const scope = self as unknown as Scope;
const PAGE = `device-tuner-page-${VERSION}`;
const BUNDLE = "device-tuner-bundle";
const ORT = ["ort/ort.wasm.min.mjs", "ort/ort-wasm-simd-threaded.mjs", "ort/ort-wasm-simd-threaded.wasm"];
const HEADERS = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Content-Security-Policy":
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; img-src 'self' blob:; " +
    "media-src 'self' blob:; style-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'",
};
const mark = new URL("../bundle.json", scope.location.href).href;

scope.addEventListener("install", (event) => event.waitUntil(install()));
scope.addEventListener("activate", (event) => event.waitUntil(activate()));
scope.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  if (event.request.method === "GET" && url.origin === scope.location.origin) event.respondWith(answer(event.request));
});

async function install(): Promise<void> {
  await (await caches.open(PAGE)).addAll([...FILES, ...ORT]);
  const response = await fetch(mark);
  if (response.ok) {
    const { files } = (await response.clone().json()) as { files: Record<string, string> };
    const cache = await caches.open(BUNDLE);
    await cache.put(mark, response);
    await cache.addAll(Object.keys(files).map((name) => new URL(name.split("/").map(encodeURIComponent).join("/"), mark).href));
  }
  await scope.skipWaiting();
}

async function activate(): Promise<void> {
  for (const name of await caches.keys()) {
    if (name.startsWith("device-tuner-page-") && name !== PAGE) await caches.delete(name);
  }
  await scope.clients.claim();
}

async function answer(request: Request): Promise<Response> {
  if (request.url === mark) await refresh();
  const kept = await caches.match(request, { ignoreSearch: true });
  const response = kept ?? (await fetch(request));
  if (!response.ok) return response;
  const headers = new Headers(response.headers);
  for (const [name, value] of Object.entries(HEADERS)) headers.set(name, value);
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
}

/** Look whether the bundle was replaced: its other files are then read anew. */
async function refresh(): Promise<void> {
  try {
    const response = await fetch(mark, { cache: "no-cache" });
    if (!response.ok) return;
    const kept = await caches.match(mark);
    if (kept && (await kept.text()) === (await response.clone().text())) return;
    await caches.delete(BUNDLE);
    await (await caches.open(BUNDLE)).put(mark, response);
  } catch {
    // without a network, what is kept answers
  }
}
