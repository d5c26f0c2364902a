/** Elements of the page. */

import type { Picture } from "../src/hearing.ts";

export const byId = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;

/** Make an element. */
export function element<K extends keyof HTMLElementTagNameMap>(
  name: K,
  values: Partial<HTMLElementTagNameMap[K]> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = Object.assign(document.createElement(name), values);
  made.append(...children);
  return made;
}

/** Return a canvas with a picture. */
export function drawn({ pixels, width, height }: Picture, label = ""): HTMLCanvasElement {
  const canvas = element("canvas", { width, height, ...(label ? { role: "img", ariaLabel: label } : {}) });
  canvas.getContext("2d")?.putImageData(new ImageData(pixels, width, height), 0, 0);
  return canvas;
}

/** Sentences are of photos; of clips they say the same. */
const NOUNS = { photo: "clip", photos: "clips", Photo: "Clip", Photos: "Clips" } as const;

/** Names of what a page of photos and one of clips call differently. */
const OTHERS = { camera: ["Camera", "Microphone"], shoot: ["Take a photo", "Take the last 2 s"], stop: ["Close the camera", "Stop listening"] } as const;
const originals = new Map<Text, string>();

/** Write the page's own sentences as they are of clips, or of photos again. */
export function reword(clips: boolean): void {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  if (!originals.size) while (walker.nextNode()) {
    const text = walker.currentNode as Text;
    if (/photo/i.test(text.data)) originals.set(text, text.data);
  }
  for (const [node, text] of originals) node.data = clips ? aboutClips(text) : text;
  byId("photos").ariaLabel = clips ? "Clips" : "Photos";
  byId("video").hidden = clips;
  for (const [id, names] of Object.entries(OTHERS)) byId(id).textContent = names[Number(clips)]!;
}

/** Return a sentence about photos as one about clips. */
export function aboutClips(text: string): string {
  return text.replace(/\bphotos?\b/gi, (noun) => NOUNS[noun as keyof typeof NOUNS] ?? noun);
}
