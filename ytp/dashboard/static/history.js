/* The third screen: how much there was over time, and the messages of a chosen part. */
import { count, payload, time } from "/dashboard/format.js";

const $ = (id) => document.getElementById(id);
const BUCKETS = 300, ROWS = 200;

export class History {
  constructor() {
    $("history-form").addEventListener("submit", (event) => { event.preventDefault(); this.load(given("since"), given("until")); });
    $("all").addEventListener("click", () => this.load(null, null));
    $("more").addEventListener("click", () => this.page());
    const canvas = $("volume");
    canvas.addEventListener("pointerdown", (event) => { this.from = event.offsetX; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => { if (this.from !== undefined) this.drawVolume(this.from, event.offsetX); });
    canvas.addEventListener("pointerup", (event) => {
      const [a, b] = [this.from, event.offsetX].sort((x, y) => x - y);
      this.from = undefined;
      if (this.counts && b - a > 3) this.load(this.timeAt(a), this.timeAt(b));
    });
  }

  connected(peer) { this.peer = peer; this.counts = undefined; if (!$("history").hidden) this.load(null, null); }
  shown() { if (this.peer && !this.counts) this.load(null, null); }

  timeAt(x) {
    const part = Math.round((x / $("volume").clientWidth) * 1e6);
    return this.since + ((this.until - this.since) * BigInt(part)) / 1000000n;
  }

  async load(since, until) {
    const turn = (this.turn = {}); // a later choice overtakes this one
    $("more").hidden = true;
    $("past").tBodies[0].replaceChildren();
    const ask = { buckets: BUCKETS };
    if (since !== null) ask.since = String(since);
    if (until !== null) ask.until = String(until);
    try {
      const answer = JSON.parse((await this.peer.call("Dash:volume", JSON.stringify(ask))).text);
      if (turn !== this.turn) return;
      this.since = BigInt(answer.since);
      this.until = BigInt(answer.until);
      this.counts = answer.counts;
    } catch (error) {
      $("history-state").textContent = error.message;
      return;
    }
    $("since").value = local(this.since);
    $("until").value = local(this.until);
    const total = this.counts.reduce((a, b) => a + b, 0);
    $("history-state").textContent = `about ${count(total)} messages`;
    this.drawVolume();
    this.next = undefined;
    await this.page();
  }

  async page() {
    const ask = { patterns: [$("history-pattern").value || "/"], since: String(this.since), until: String(this.until), limit: ROWS };
    if (this.next !== undefined) ask.start = this.next;
    const turn = this.turn;
    $("more").hidden = true; // until this page is here
    let answer;
    try {
      answer = await this.peer.call("Bus:history", JSON.stringify(ask));
    } catch (error) {
      $("history-state").textContent = error.message;
      return;
    }
    if (turn !== this.turn) return;
    const { messages, next } = JSON.parse(answer.text);
    for (const m of messages) {
      const bytes = m.text !== undefined ? new TextEncoder().encode(m.text) : await answer.attachments[m.attachment];
      const row = $("past").tBodies[0].insertRow();
      const shown = m.text !== undefined ? m.text : payload(bytes, "hex");
      for (const text of [time(m.time), m.peer, m.channel, shown.slice(0, 500)]) row.insertCell().textContent = text;
    }
    this.next = next;
    $("more").hidden = messages.length < ROWS;
  }

  drawVolume(from, to) {
    const canvas = $("volume"), context = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    canvas.width = canvas.clientWidth;
    context.clearRect(0, 0, canvas.width, canvas.height);
    const most = Math.max(1, ...this.counts), width = canvas.width / this.counts.length;
    context.fillStyle = style.getPropertyValue("--accent");
    this.counts.forEach((value, i) => {
      const height = (value / most) * (canvas.height - 4);
      context.fillRect(i * width, canvas.height - height, Math.max(1, width - 0.5), height);
    });
    if (from !== undefined) {
      context.globalAlpha = 0.25;
      context.fillRect(Math.min(from, to), 0, Math.abs(to - from), canvas.height);
      context.globalAlpha = 1;
    }
  }
}

/* The fields show local time; the log counts nanoseconds of UTC. */
function local(nanoseconds) {
  const date = new Date(Number(nanoseconds / 1000000n));
  return isNaN(date) ? "" : new Date(date - date.getTimezoneOffset() * 60000).toISOString().slice(0, 23);
}

function given(id) {
  const value = $(id).value;
  return value ? BigInt(new Date(value).getTime()) * 1000000n : null;
}
