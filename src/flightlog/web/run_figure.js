// A figure of a run's page. It is drawn when Plotly is there, and again when it has changed.
const NARROW_PX = 560;
const touched = matchMedia("(hover: none)");

// On a phone: few ticks, and room for the rows that the legend takes.
function narrow(data, layout, width) {
  Object.assign((layout.xaxis ??= {}), { tickangle: 0, nticks: 4 });
  if (!layout.showlegend) return;
  const names = data.filter((one) => one.name && one.showlegend !== false).map((one) => one.name.length);
  const columns = Math.max(1, Math.floor((width - 110) / (Math.max(1, ...names) * 7 + 48)));
  const room = (Math.ceil(names.length / columns) - 1) * 19 + 8;
  layout.height += room;
  layout.margin = { ...layout.margin, t: (layout.margin?.t ?? 0) + room };
}

export default {
  props: { shown: { type: String, default: "" }, name: String },
  data: () => ({ drawn: false, height: 0 }),
  computed: {
    view() {
      return this.shown ? JSON.parse(this.shown) : null;
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
      const width = this.$refs.place?.clientWidth;
      if (this.drawn && width && width !== this.width) this.draw();
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
      layout.height ??= 300;
      this.width = place.clientWidth;
      if (this.width < NARROW_PX) narrow(data, layout, this.width);
      if (touched.matches) layout.dragmode = false; // a finger scrolls the page
      this.height = layout.height;
      await this.$nextTick();
      await this.plotly.react(place, data, layout, config);
      if (!this.drawn) this.observer.observe(place);
      this.drawn = true;
    },
  },
  template: `
  <section v-show="view" class="fl-card fl-live" :data-section="name">
    <div class="fl-live-title"><h2>{{ view?.title }}</h2><div class="fl-words fl-quiet">{{ view?.note }}</div></div>
    <div ref="place" class="fl-figure fl-live-figure js-plotly-plot" :data-figure="view ? name : null"
         :data-drawn="drawn ? '' : null" :style="{ height: height + 'px' }"></div>
  </section>`,
};
