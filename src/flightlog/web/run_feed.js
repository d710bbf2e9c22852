// Failures or a log, the newest first. What a viewer has opened stays open when others come. Everything is rendered as text.
export default {
  props: { shown: { type: String, default: "" }, told: { type: String, default: "" }, heading: String, name: String },
  emits: ["details"],
  data: () => ({ texts: new Map() }),
  computed: {
    view() {
      return this.shown ? JSON.parse(this.shown) : { note: "", items: [] };
    },
  },
  watch: {
    told(now) {
      for (const [key, text] of Object.entries(JSON.parse(now))) this.texts.set(key, text);
    },
    // What is no longer shown is forgotten.
    view(now) {
      const there = new Set(now.items.map((item) => item.key));
      for (const key of [...this.texts.keys()]) if (!there.has(key)) this.texts.delete(key);
    },
  },
  methods: {
    opened(event, item) {
      if (event.target.open && !this.texts.has(item.key)) this.$emit("details", item.key);
    },
    clock(at) {
      return at.length > 19 ? at.slice(11, 19) : at;
    },
  },
  template: `
  <section v-if="view.items.length" class="fl-card fl-live" :data-section="name">
    <div class="fl-live-title"><h2>{{ heading }}</h2><div class="fl-words fl-quiet">{{ view.note }}</div></div>
    <div v-if="name === 'failures'" class="fl-failures">
      <details v-for="item in view.items" :key="item.key" class="fl-failure" data-failure @toggle="opened($event, item)">
        <summary>
          <div class="fl-words" :class="'fl-' + item.tone">{{ item.text }}</div>
          <div class="fl-words fl-quiet fl-live-small">{{ item.at }} · {{ item.about }}</div>
        </summary>
        <div v-if="texts.has(item.key)" class="fl-trace" tabindex="0">{{ texts.get(item.key) }}</div>
      </details>
    </div>
    <div v-else class="fl-logs" tabindex="0" role="log" aria-live="off" :aria-label="heading">
      <div v-for="item in view.items" :key="item.key" class="fl-log" data-log>
        <div class="fl-words fl-quiet fl-mono">{{ clock(item.at) }}</div>
        <div class="fl-words fl-quiet fl-live-small">{{ item.about }}</div>
        <div class="fl-words" :class="item.tone ? 'fl-' + item.tone : ''">{{ item.text }}</div>
      </div>
    </div>
  </section>`,
};
