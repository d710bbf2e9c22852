// A figure of a run's page. It is drawn when Plotly is there, and again when it has changed.
export default {
  props: { shown: { type: String, default: "" }, heading: String, name: String },
  data: () => ({ drawn: false }),
  computed: {
    view() {
      return this.shown ? JSON.parse(this.shown) : null;
    },
    height() {
      return (this.view?.figure.layout.height || 300) + "px";
    },
  },
  watch: {
    view() {
      this.$nextTick(this.draw);
    },
  },
  async mounted() {
    this.plotly = (await import("nicegui-plotly")).Plotly;
    this.observer = new ResizeObserver(() => {
      if (this.drawn && this.$refs.place?.offsetParent) this.plotly.Plots.resize(this.$refs.place);
    });
    await this.draw();
  },
  unmounted() {
    this.observer?.disconnect();
  },
  methods: {
    async draw() {
      const place = this.$refs.place;
      if (!this.plotly || !this.view || !place) return;
      const { data, layout, config } = JSON.parse(this.shown).figure; // Plotly writes into what it is given
      await this.plotly.react(place, data, layout, config);
      if (!this.drawn) this.observer.observe(place);
      this.drawn = true;
    },
  },
  template: `
  <section v-show="view" class="fl-card fl-live" :data-section="name">
    <div class="fl-live-title"><h2>{{ heading }}</h2><div class="fl-words fl-quiet">{{ view?.note }}</div></div>
    <div ref="place" class="fl-figure fl-live-figure js-plotly-plot" :data-figure="view ? name : null"
         :data-drawn="drawn ? '' : null" :style="{ height }"></div>
  </section>`,
};
