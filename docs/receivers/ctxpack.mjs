// Receiver for Context Pack v1 (docs/protocol.md). Node 20+ and browsers (https or localhost, for crypto.subtle), no dependency.
// A pack here is {encoded: [Base64 of each chunk], digest: "sha256:...", bytes: Uint8Array of the content}.
const PACK = "ctxpack.pack.v1", DELTA = "ctxpack.delta.v1";
const encoder = new TextEncoder(), decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const must = (holds, code) => { if (!holds) throw Object.assign(new Error(code), { code }); };
const attempt = (act, code) => { try { return act(); } catch { return must(false, code); } };
const unbase64 = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
const isString = (value) => typeof value === "string", isCount = (value) => Number.isInteger(value) && value >= 0;
const isDigest = (value) => /^sha256:[0-9a-f]{64}$/.test(value), isList = (value) => Array.isArray(value) && value.every(isString);
const PACK_FIELDS = { byte_count: isCount, chunk_bytes: isList, digest: isString, schema: isString, total_bytes: isCount };
const DELTA_FIELDS = { base_digest: isString, kept_chunks: isCount, new_chunks: isList, schema: isString, target_digest: isString };

export function split(bytes, limit = 512) {                 // Uint8Array of valid UTF-8 -> array of its chunks
  const chunks = [];
  for (let from = 0, to, long = 0; from < bytes.length; from = to) {      // long: where the line too long for a chunk ends
    to = Math.min(from + limit, bytes.length);
    const feed = bytes.subarray(from, to).lastIndexOf(10) + 1;
    if (from >= long && !feed && to < bytes.length) long = bytes.indexOf(10, from) + 1 || bytes.length;
    if (from < long) for (to = Math.min(to, long); to < long && (bytes[to] & 0xc0) === 0x80;) to--;
    else if (to < bytes.length) to = from + feed;
    chunks.push(bytes.subarray(from, to));
  }
  return chunks;
}
async function packOf(encoded) {                            // Base64 strings that were checked -> pack
  const canonical = encoder.encode(JSON.stringify({ chunk_bytes: encoded, schema: PACK }));
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", canonical));
  const digest = "sha256:" + Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return { encoded, digest, bytes: new Uint8Array(await new Blob(encoded.map(unbase64)).arrayBuffer()) };
}
export const textOf = (pack) => decoder.decode(pack.bytes);
export async function packUtf8(bytes) {                     // the content in UTF-8 -> pack
  attempt(() => decoder.decode(bytes), "invalid_utf8");
  return packOf(split(bytes).map((chunk) => btoa(String.fromCharCode(...chunk))));
}
function read(bytes, schema, fields) {                      // the checks packs and deltas share, in the order of the format
  const names = Object.keys(fields), text = attempt(() => decoder.decode(bytes), "invalid_json");
  const value = attempt(() => JSON.parse(text), "invalid_json");
  must(value !== null && typeof value === "object" && !Array.isArray(value), "invalid_type");
  must(names.every((name) => Object.hasOwn(value, name)), "missing_field");
  must(Object.keys(value).length === names.length, "unexpected_field");
  must(value.schema === schema, "schema_mismatch");
  must(names.every((name) => fields[name](value[name])), "invalid_type");
  const chunks = value.chunk_bytes ?? value.new_chunks;
  must(chunks.every((chunk) => attempt(() => btoa(atob(chunk)), "invalid_base64") === chunk), "invalid_base64");
  attempt(() => chunks.forEach((chunk) => decoder.decode(unbase64(chunk))), "invalid_utf8");
  must(!chunks.includes(""), "empty_chunk");
  must(names.every((name) => !name.endsWith("digest") || isDigest(value[name])), "invalid_digest");
  return { value, canonical: text === JSON.stringify(Object.fromEntries(names.map((name) => [name, value[name]]))) };
}
export async function readPack(bytes) {                     // a serialised pack -> pack
  const { value, canonical } = read(bytes, PACK, PACK_FIELDS), pack = await packOf(value.chunk_bytes);
  must(pack.digest === value.digest, "digest_mismatch");
  must(pack.bytes.length === value.total_bytes, "total_bytes_mismatch");
  let digits = 1;
  const others = JSON.stringify({ ...value, byte_count: 0 }).length - 1;
  while (String(others + digits).length !== digits) digits++;
  must(value.byte_count === others + digits, "byte_count_mismatch");
  must(canonical, "not_canonical");
  return pack;
}
export async function applyDelta(base, bytes) {             // the pack held and a serialised delta -> the new pack
  const { value, canonical } = read(bytes, DELTA, DELTA_FIELDS);
  must(canonical, "not_canonical");
  must(value.base_digest === base?.digest, "base_mismatch");
  must(value.kept_chunks <= base.encoded.length, "kept_out_of_range");
  const pack = await packOf([...base.encoded.slice(0, value.kept_chunks), ...value.new_chunks]);
  must(pack.digest === value.target_digest, "target_mismatch");
  return pack;
}
// A body whose first coding a browser does not know arrives as it was sent, outer gzip included. `coding` is Content-Encoding.
export async function decode(bytes, coding, base) {
  const [inner, ...outer] = (coding ?? "").toLowerCase().split(",").map((name) => name.trim());
  if (inner !== PACK && inner !== DELTA) return packUtf8(bytes);          // plain text; gzip alone the browser has undone
  must(outer.every((name) => name === "gzip"), "unsupported_coding");
  for (const _ of outer) bytes = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  return inner === PACK ? readPack(bytes) : applyDelta(base, bytes);
}
// In a page:  held = await fetchPack("/prepare/meeting?turn=7", held);  show(textOf(held));  where held is null the first time.
const SESSION = crypto.randomUUID();                                      // this page's conversation: it opens the bases
export async function fetchPack(url, held = null, init = {}) {
  const headers = new Headers(init.headers);
  headers.set("Ctxpack-Accept", `${DELTA}, ${PACK}, gzip`);
  headers.set("Ctxpack-Base", held?.digest ?? "none");
  if (!headers.has("Packhorse-Session")) headers.set("Packhorse-Session", SESSION);
  const response = await fetch(url, { ...init, headers });
  must(response.ok, `HTTP ${response.status}`);
  const pack = await decode(new Uint8Array(await response.arrayBuffer()), response.headers.get("Content-Encoding"), held);
  must((response.headers.get("Ctxpack-Digest") ?? pack.digest) === pack.digest, "digest_mismatch");
  return pack;
}
