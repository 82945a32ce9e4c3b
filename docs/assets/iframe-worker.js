// The search of the theme runs in a Worker, which browsers refuse to a page that is opened from a
// folder. There a hidden frame takes its place. The theme's script asks for the frame by this name.
"use strict";
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    this.ready = new Promise((done) => { frame.onload = done; }).then(() => {
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) =>
        setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));
      this.inside.importScripts = async (...urls) => {
        for (const one of urls) await this.load(one);
      };
      return this.load(url);
    });
    document.body.append(frame);
  }

  load(url) {
    const page = this.inside.document, script = page.createElement("script");
    return new Promise((done, failed) => {
      Object.assign(script, { src: url, onload: done, onerror: failed });
      page.body.append(script);
    });
  }

  postMessage(data) {
    this.ready.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })));
  }
}
window.IFrameWorker = IFrameWorker;
if (location.protocol === "file:") window.Worker = IFrameWorker;
