/* Numbers, times and payloads as text. */

export function count(value) {
  if (value >= 1e9) return (value / 1e9).toFixed(2) + " G";
  if (value >= 1e6) return (value / 1e6).toFixed(2) + " M";
  if (value >= 1e4) return (value / 1e3).toFixed(1) + " k";
  return value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
}

export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit++; }
  return `${unit ? bytes.toFixed(1) : bytes.toFixed(0)} ${units[unit]}`;
}

/* Nanoseconds, as text, to the time of day. */
export function time(nanoseconds) {
  const ns = BigInt(nanoseconds);
  const date = new Date(Number(ns / 1000000n));
  return isNaN(date) ? nanoseconds : date.toISOString().replace("T", " ").slice(0, 23);
}

export function payload(bytes, form) {
  if (form === "hex") return hex(bytes);
  if (form === "msgpack") {
    try { return JSON.stringify(unpack(bytes)); } catch { return hex(bytes); }
  }
  const text = new TextDecoder().decode(bytes);
  if (form === "json") {
    try { return JSON.stringify(JSON.parse(text), null, 1); } catch { return text; }
  }
  return text;
}

function hex(bytes) {
  return Array.from(bytes.slice(0, 4096), (b) => b.toString(16).padStart(2, "0")).join(" ") + (bytes.length > 4096 ? " …" : "");
}

/* MessagePack, as far as it can be shown: nil, booleans, numbers, text, binary, arrays and maps. */
export function unpack(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const take = (n) => { at += n; if (at > bytes.length) throw new RangeError("cut off"); return at - n; };
  const unsigned = (n) => { const p = take(n); return n === 8 ? Number(view.getBigUint64(p)) : n === 4 ? view.getUint32(p) : n === 2 ? view.getUint16(p) : view.getUint8(p); };
  const signed = (n) => { const p = take(n); return n === 8 ? Number(view.getBigInt64(p)) : n === 4 ? view.getInt32(p) : n === 2 ? view.getInt16(p) : view.getInt8(p); };
  const text = (n) => { const p = take(n); return new TextDecoder().decode(bytes.subarray(p, at)); };
  const binary = (n) => { const p = take(n); return hex(bytes.subarray(p, at)); };
  const list = (n, depth) => { const made = []; while (n-- > 0) made.push(value(depth)); return made; };
  const map = (n, depth) => { const made = {}; while (n-- > 0) made[value(depth)] = value(depth); return made; };
  function value(depth) {
    if (depth > 100) throw new RangeError("too deep");
    const b = unsigned(1), d = depth + 1;
    if (b < 0x80) return b;
    if (b >= 0xe0) return b - 0x100;
    if (b < 0x90) return map(b & 15, d);
    if (b < 0xa0) return list(b & 15, d);
    if (b < 0xc0) return text(b & 31);
    switch (b) {
      case 0xc0: return null;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xc4: case 0xc5: case 0xc6: return binary(unsigned(1 << (b - 0xc4)));
      case 0xca: return view.getFloat32(take(4));
      case 0xcb: return view.getFloat64(take(8));
      case 0xcc: case 0xcd: case 0xce: case 0xcf: return unsigned(1 << (b - 0xcc));
      case 0xd0: case 0xd1: case 0xd2: case 0xd3: return signed(1 << (b - 0xd0));
      case 0xd9: case 0xda: case 0xdb: return text(unsigned(1 << (b - 0xd9)));
      case 0xdc: case 0xdd: return list(unsigned(b === 0xdc ? 2 : 4), d);
      case 0xde: case 0xdf: return map(unsigned(b === 0xde ? 2 : 4), d);
      default: throw new RangeError("not shown");
    }
  }
  const result = value(0);
  if (at !== bytes.length) throw new RangeError("more behind it");
  return result;
}
