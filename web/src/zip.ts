/** Zip files: written without compression, read with or without it. */

import { type Bytes, crc32, decode, encode, TunerError, viewOf } from "./bytes.ts";

const MOST_BYTES = 2 ** 31;

/** Return the files of a zip by name. */
export async function readZip(content: Bytes): Promise<Map<string, Bytes>> {
  const view = viewOf(content);
  let end = content.length - 22;
  while (end >= 0 && view.getUint32(end, true) !== 0x06054b50) end--;
  if (end < 0) throw new TunerError("the file is no zip: choose one that was exported");
  const files = new Map<string, Bytes>();
  let at = view.getUint32(end + 16, true);
  let total = 0;
  for (let count = view.getUint16(end + 10, true); count > 0; count--) {
    if (view.getUint32(at, true) !== 0x02014b50) throw new TunerError("the zip is damaged: copy it again");
    const method = view.getUint16(at + 10, true);
    const [packed, size] = [view.getUint32(at + 20, true), view.getUint32(at + 24, true)];
    const [nameLength, extra, comment] = [28, 30, 32].map((offset) => view.getUint16(at + offset, true)) as [
      number,
      number,
      number,
    ];
    const local = view.getUint32(at + 42, true);
    const name = decode(content.subarray(at + 46, at + 46 + nameLength));
    at += 46 + nameLength + extra + comment;
    total += size;
    if (total > MOST_BYTES) throw new TunerError("the zip holds more than a bundle does");
    if (name.endsWith("/")) continue;
    const begin = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    const raw = content.slice(begin, begin + packed);
    const file = method === 0 ? raw : method === 8 ? await inflate(raw, size) : null;
    if (!file || file.length !== size) throw new TunerError(`${name} in the zip cannot be read: export it again`);
    files.set(name, file);
  }
  return files;
}

async function inflate(packed: Bytes, size: number): Promise<Bytes> {
  const reader = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const out = new Uint8Array(size);
  let at = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    if (at + part.value.length > size) throw new TunerError("the zip declares other sizes than it holds");
    out.set(part.value, at);
    at += part.value.length;
  }
  return out.subarray(0, at);
}

/** Return a zip of files by name. */
export function writeZip(files: ReadonlyMap<string, Bytes>): Blob {
  const parts: Bytes[] = [];
  const directory: Bytes[] = [];
  let offset = 0;
  for (const [name, content] of files) {
    const text = encode(name);
    const head = new Uint8Array(46);
    const view = viewOf(head);
    view.setUint32(0, 0x02014b50, true);
    view.setUint16(4, 20, true); // versions made by and needed: 2.0
    view.setUint16(6, 20, true);
    view.setUint16(8, 0x800, true); // names are UTF-8
    view.setUint16(14, 33, true); // 1 January 1980: a zip of the same bundle is the same
    view.setUint32(16, crc32(content), true);
    view.setUint32(20, content.length, true);
    view.setUint32(24, content.length, true);
    view.setUint16(28, text.length, true);
    view.setUint32(42, offset, true);
    const local = new Uint8Array(30);
    viewOf(local).setUint32(0, 0x04034b50, true);
    local.set(head.subarray(6, 32), 4);
    parts.push(local, text, content);
    directory.push(head, text);
    offset += 30 + text.length + content.length;
  }
  const size = directory.reduce((sum, part) => sum + part.length, 0);
  const end = new Uint8Array(22);
  const view = viewOf(end);
  view.setUint32(0, 0x06054b50, true);
  view.setUint16(8, files.size, true);
  view.setUint16(10, files.size, true);
  view.setUint32(12, size, true);
  view.setUint32(16, offset, true);
  return new Blob([...parts, ...directory, end], { type: "application/zip" });
}
