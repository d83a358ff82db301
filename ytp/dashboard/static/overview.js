/* The first screen: rates of everything. Thousands of channels cost nothing: only rows in sight exist. */
import { count, size } from "/dashboard/format.js";
import { draw } from "/dashboard/spark.js";

const $ = (id) => document.getElementById(id);
const ROW = 24, KEPT = 60;

class Channel {
  constructor(name) {
    this.name = name;
    this.total = 0;
    this.rate = 0;
    this.bytes = 0;
    this.past = [];
  }
}

export class Overview {
  constructor(show) {
    this.show = show;
    this.channels = [];
    this.peers = [];
    this.order = [];
    this.rates = [];
    this.sizes = [];
    this.rows = new Map();
    this.list = $("channels");
    this.list.addEventListener("scroll", () => this.drawRows());
    $("channel-filter").addEventListener("input", () => this.sort());
    this.list.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) this.show("tail", row.dataset.name);
    });
  }

  shown() { this.drawRows(); }

  async connected(peer) {
    this.peer = peer;
    await this.loadNames();
    const updates = peer.subscribe();
    await peer.call("Dash:watch", JSON.stringify({ topic: updates.topic }));
    for await (const update of updates) await this.update(JSON.parse(update.text));
  }

  async loadNames() {
    const names = JSON.parse((await this.peer.call("Dash:names", "{}")).text);
    for (const name of names.channels.slice(this.channels.length)) this.channels.push(new Channel(name));
    this.peers = names.peers;
    const shown = names.channels.slice(0, 1000);
    $("names").replaceChildren(...shown.map((name) => new Option(name)));
  }

  async update(update) {
    if (update.names[0] !== this.channels.length || update.names[1] !== this.peers.length) await this.loadNames();
    const seconds = update.seconds;
    const now = new Map(update.channels.map(([n, messages, bytes]) => [n, [messages, bytes]]));
    this.channels.forEach((channel, n) => {
      const [messages, bytes] = now.get(n) ?? [0, 0];
      channel.total += messages;
      channel.rate = messages / seconds;
      channel.bytes = bytes / seconds;
      channel.past.push(channel.rate);
      if (channel.past.length > KEPT) channel.past.shift();
    });
    this.rates.push(update.messages / seconds);
    this.sizes.push(update.bytes / seconds);
    if (this.rates.length > KEPT) { this.rates.shift(); this.sizes.shift(); }
    $("rate").textContent = count(update.messages / seconds);
    $("bytes").textContent = size(update.bytes / seconds);
    $("size").textContent = size(update.file);
    $("count").textContent = count(this.channels.length);
    $("skipped").textContent = count(update.skipped);
    draw($("rate-line"), this.rates);
    draw($("bytes-line"), this.sizes);
    this.drawPeers(new Map(update.peers), seconds);
    this.drawDoors(update.doors);
    this.sort();
  }

  sort() {
    const wanted = $("channel-filter").value;
    this.order = this.channels.filter((channel) => channel.name.includes(wanted));
    this.order.sort((a, b) => (a.name < b.name ? -1 : 1));
    this.drawRows();
  }

  drawRows() {
    this.list.querySelector(".spacer").style.height = `${this.order.length * ROW}px`;
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW) - 5);
    const last = Math.min(this.order.length, first + Math.ceil(this.list.clientHeight / ROW) + 10);
    for (const [place, row] of this.rows) if (place < first || place >= last) { row.remove(); this.rows.delete(place); }
    for (let place = first; place < last; place++) {
      let row = this.rows.get(place);
      if (!row) {
        row = document.createElement("div");
        row.className = "row";
        row.style.top = `${place * ROW}px`;
        row.innerHTML = '<span class="name"></span><span class="number"></span><span class="number"></span><canvas width="90" height="20"></canvas>';
        this.list.append(row);
        this.rows.set(place, row);
      }
      const channel = this.order[place];
      row.dataset.name = channel.name;
      row.children[0].textContent = channel.name;
      row.children[0].title = channel.name;
      row.children[1].textContent = `${count(channel.rate)}/s`;
      row.children[2].textContent = count(channel.total);
      draw(row.children[3], channel.past);
    }
  }

  drawPeers(now, seconds) {
    const rows = this.peers.map((name, n) => [name, (now.get(n) ?? 0) / seconds]).sort((a, b) => b[1] - a[1]).slice(0, 50);
    fill($("peers"), rows.map(([name, rate]) => [name, count(rate)]));
  }

  drawDoors(doors) {
    fill($("doors"), doors.map((d) => [d.name, d.address ?? "", d.sessions ?? "", d.queued ?? "", d.errors ?? ""]));
  }
}

export function fill(table, rows) {
  table.tBodies[0].replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    for (const text of cells) row.insertCell().textContent = text;
    return row;
  }));
}
