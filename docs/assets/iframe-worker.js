// A worker for pages that are opened as files: browsers start none there, so its script runs in a frame. Search needs it.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.ready = new Promise((loaded) => {
        const frame = document.createElement("iframe");
        frame.hidden = true;
        document.body.append(frame);
        const inside = frame.contentWindow;
        inside.document.open();
        inside.document.write("<!doctype html><html><body></body></html>");
        inside.document.close();
        inside.postMessage = (data) => {
          const event = new MessageEvent("message", { data });
          this.dispatchEvent(event);
          if (this.onmessage) this.onmessage(event);
        };
        inside.importScripts = (...urls) => urls.reduce((before, one) => before.then(() => load(inside, one)), Promise.resolve());
        load(inside, url).then(() => loaded(inside));
      });
    }
    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
    terminate() {}
  };

  function load(inside, url) {
    return new Promise((loaded, failed) => {
      const script = inside.document.createElement("script");
      script.src = url;
      script.onload = loaded;
      script.onerror = failed;
      inside.document.body.append(script);
    });
  }
}
