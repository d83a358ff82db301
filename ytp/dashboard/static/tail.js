/* The second screen: messages of a channel as they come, and a box to publish. */
import { payload, time } from "/dashboard/format.js";

const $ = (id) => document.getElementById(id);
const KEPT = 500;

export class Tail {
  constructor() {
    this.paused = false;
    this.waiting = [];
    this.dropped = 0;
    $("tail-form").addEventListener("submit", (event) => { event.preventDefault(); this.start(); });
    $("tail-form-of").addEventListener("change", () => this.start());
    $("pause").addEventListener("click", () => this.pause(!this.paused));
    $("publish-form").addEventListener("submit", (event) => { event.preventDefault(); this.publish(); });
  }

  shown(channel) {
    if (channel !== undefined) {
      $("tail-pattern").value = channel;
      $("publish-channel").value = channel;
    }
    if (channel !== undefined || !this.updates) this.start();
  }

  connected(peer) {
    this.peer = peer;
    this.updates = null;
    if (!$("tail").hidden) this.start();
  }

  pause(paused) {
    this.paused = paused;
    $("pause").textContent = paused ? "Go on" : "Pause";
    if (!paused) { this.append(this.waiting.splice(0)); }
    this.say();
  }

  say() {
    const parts = [];
    if (this.paused) parts.push(`${this.waiting.length} waiting`);
    if (this.dropped) parts.push(`${this.dropped} left out`);
    $("tail-state").textContent = parts.join(", ");
  }

  async start() {
    if (!this.peer) return;
    this.updates?.unsubscribe();
    $("messages").replaceChildren();
    this.waiting = [];
    this.dropped = 0;
    const updates = (this.updates = this.peer.subscribe(undefined, { maxsize: 64 }));
    const ask = { topic: updates.topic, patterns: [$("tail-pattern").value || "/"], start: "end" };
    try {
      await this.peer.call("Bus:subscribe", JSON.stringify(ask));
    } catch (error) {
      $("tail-state").textContent = error.message;
      return;
    }
    for await (const update of updates) {
      if (updates !== this.updates) return;
      const messages = JSON.parse(update.text).messages;
      /* A fast channel: what can be read by nobody is not drawn. */
      const seen = messages.slice(-KEPT);
      this.dropped += messages.length - seen.length;
      for (const m of seen) m.bytes = m.text !== undefined ? new TextEncoder().encode(m.text) : await update.attachments[m.attachment];
      if (this.paused) {
        this.waiting.push(...seen);
        this.dropped += this.waiting.splice(0, Math.max(0, this.waiting.length - KEPT)).length;
      } else {
        this.append(seen);
      }
      this.say();
    }
  }

  append(messages) {
    const wanted = $("tail-text").value, form = $("tail-form-of").value, log = $("messages");
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    for (const m of messages) {
      const text = payload(m.bytes, form);
      if (wanted && !text.includes(wanted)) continue;
      const line = document.createElement("div");
      const when = document.createElement("span"), who = document.createElement("span");
      when.className = "when";
      when.textContent = time(m.time) + " ";
      who.className = "who";
      who.textContent = `${m.peer} ${m.channel} `;
      line.append(when, who, text);
      log.append(line);
    }
    while (log.childElementCount > KEPT) log.firstElementChild.remove();
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  async publish() {
    const say = $("publish-state");
    try {
      await this.peer.call("Bus:publish", JSON.stringify({ channel: $("publish-channel").value, text: $("publish-text").value }));
      say.textContent = "published";
      say.classList.remove("bad");
      $("publish-text").value = "";
    } catch (error) {
      say.textContent = error.message;
      say.classList.add("bad");
    }
  }
}
