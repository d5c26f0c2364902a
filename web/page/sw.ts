/**
 * The page without a network: its own files and the bundle's are kept when they were loaded once. Other bundles of the same
 * server have caches of their own.
 *
 * Answers also get the headers that threads need, and the policy that the page has: workers take theirs from headers.
 */

import { digest } from "../src/bytes.ts";

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
const mark = new URL("../bundle.json", scope.location.href).href;
const FOLDER = new URL("./", mark).href;
const PAGE = `device-tuner-page-${VERSION} ${FOLDER}`;
const BUNDLE = `device-tuner-bundle ${FOLDER}`;
const ORT = ["ort/ort.wasm.min.mjs", "ort/ort-wasm-simd-threaded.mjs", "ort/ort-wasm-simd-threaded.wasm"];
const HEADERS = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Content-Security-Policy":
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; img-src 'self' blob:; " +
    "media-src 'self' blob:; style-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'",
};

scope.addEventListener("install", (event) => event.waitUntil(install()));
scope.addEventListener("activate", (event) => event.waitUntil(activate()));
scope.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  if (event.request.method === "GET" && url.origin === scope.location.origin) event.respondWith(answer(event.request));
});

async function install(): Promise<void> {
  const requests = [...FILES, ...ORT].map((name) => new Request(name, { cache: "no-cache" }));
  await (await caches.open(PAGE)).addAll(requests);
  await keep();
  await scope.skipWaiting();
}

async function activate(): Promise<void> {
  for (const name of await caches.keys()) {
    const own = name.startsWith("device-tuner-") && (name.endsWith(` ${FOLDER}`) || !name.includes(" ")); // older names have no folder
    if (own && name !== PAGE && name !== BUNDLE) await caches.delete(name);
  }
  await scope.clients.claim();
}

async function answer(request: Request): Promise<Response> {
  if (request.url === mark) await keep().catch(() => {}); // without a network, what is kept answers
  const kept = (await find(BUNDLE, request)) ?? (await find(PAGE, request));
  const response = kept ?? (await fetch(request));
  if (!response.ok) return response;
  const headers = new Headers(response.headers);
  for (const [name, value] of Object.entries(HEADERS)) headers.set(name, value);
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
}

function find(cacheName: string, request: Request | string): Promise<Response | undefined> {
  return caches.match(request, { ignoreSearch: true, cacheName });
}

/** Keep all files of the bundle if it is another one than is kept; that one answers until all are there, and whole. */
async function keep(): Promise<void> {
  const response = await fetch(mark, { cache: "no-cache" });
  if (!response.ok) return;
  const text = await response.clone().text();
  if (text === (await (await find(BUNDLE, mark))?.text())) return;
  const { files } = JSON.parse(text) as { files: Record<string, string> };
  const found = await Promise.all(Object.entries(files).map(async ([name, hash]) => {
    const url = new URL(name.split("/").map(encodeURIComponent).join("/"), mark).href;
    const file = await fetch(url, { cache: "no-cache" });
    if (!file.ok || (await digest(new Uint8Array(await file.clone().arrayBuffer()))) !== hash) throw new Error(`${name} is not the bundle's`);
    return [url, file] as const;
  }));
  await caches.delete(BUNDLE);
  const cache = await caches.open(BUNDLE);
  for (const [url, file] of found) await cache.put(url, file);
  await cache.put(mark, response);
}
