// How far a run is, in words and figures. Everything a run recorded is rendered as text.
export default {
  props: { shown: { type: String, default: "" }, problem: { type: String, default: "" }, address: String },
  computed: {
    view() {
      return this.shown ? JSON.parse(this.shown) : null;
    },
    value() {
      return JSON.stringify(this.view.status);
    },
  },
  template: `
  <div>
    <section v-if="problem" class="fl-card fl-words fl-bad" role="alert">{{
      view ? "What is shown is from before, since the run can no longer be read: " : "The run cannot be read: "
    }}{{ problem }}</section>
    <div v-if="!view && !problem" class="fl-waiting" role="status">
      <q-spinner size="1.25rem"></q-spinner><div class="fl-words fl-quiet">Reading the run …</div>
    </div>
    <section v-if="view" class="fl-card">
      <div class="fl-live-title">
        <div class="fl-status fl-live-status" :class="'fl-' + view.status" data-path="run.status"
             :data-value="value">{{ view.headline }}</div>
        <div class="fl-words fl-live-progress">{{ view.progress }}</div>
      </div>
      <div v-if="view.done !== null" class="fl-meter" role="progressbar" aria-label="Tasks that ended"
           :aria-valuenow="view.done" aria-valuemin="0" aria-valuemax="100">
        <div :style="{ width: view.done + '%' }"></div>
      </div>
      <dl class="fl-tiles">
        <div v-for="tile in view.tiles" :key="tile.path" class="fl-tile">
          <dt>{{ tile.label }}</dt>
          <dd :data-path="tile.path" :data-value="tile.value" :data-tone="tile.tone">{{ tile.text }}</dd>
        </div>
      </dl>
      <div v-if="view.error" class="fl-words fl-bad fl-live-error">{{ view.error }}</div>
      <div v-if="view.problems" class="fl-words fl-warn fl-live-problems">{{ view.problems }}</div>
      <div v-if="view.facts" class="fl-words fl-quiet fl-live-small">{{ view.facts }}</div>
      <div v-if="view.why" class="fl-live-links"><a :href="address + '/diagnosis'">{{ view.why }}</a></div>
    </section>
  </div>`,
};
