// A table of a run's page: sorted and paged as its viewer likes, whatever comes. Cells are rendered as text.
const ROWS = 12;

export default {
  props: { shown: { type: String, default: "" }, name: String, columns: String },
  data: () => ({ pagination: { page: 1, rowsPerPage: ROWS, sortBy: null, descending: false }, least: ROWS }),
  computed: {
    view() {
      return this.shown ? JSON.parse(this.shown) : { note: "", rows: [] };
    },
    made() {
      return JSON.parse(this.columns).map((one) => {
        const text = one.name + "_text";
        return { ...one, format: (value, row) => row[text] ?? value };
      });
    },
    // Columns with nothing in them are left out.
    there() {
      const known = (value) => value !== "" && value !== null && value !== undefined;
      return this.made.map((one) => one.name).filter((name) => this.view.rows.some((row) => known(row[name])));
    },
  },
  methods: {
    // The first cell says by its colour, too, that something is wrong with its row.
    tone(cell) {
      return cell.col.name === this.made[0].name && cell.row.tone ? "fl-" + cell.row.tone : "";
    },
    order(column) {
      if (this.pagination.sortBy !== column.name) return "none";
      return this.pagination.descending ? "descending" : "ascending";
    },
  },
  template: `
  <section v-if="view.rows.length" class="fl-card fl-live" :data-section="name">
    <div class="fl-live-title"><h2>{{ view.title }}</h2><div class="fl-words fl-quiet">{{ view.note }}</div></div>
    <q-table flat dense class="fl-runs fl-live-table" row-key="id" :rows="view.rows" :columns="made"
             :visible-columns="there" v-model:pagination="pagination" :rows-per-page-options="[12, 50, 200]"
             :hide-bottom="view.rows.length <= least">
      <template v-slot:header-cell="cell">
        <q-th :props="cell" :aria-sort="order(cell.col)" tabindex="0" @keydown.enter.prevent="cell.sort(cell.col)"
              @keydown.space.prevent="cell.sort(cell.col)">{{ cell.col.label }}</q-th>
      </template>
      <template v-slot:body-cell="cell">
        <q-td :props="cell" :class="tone(cell)">{{ cell.value }}</q-td>
      </template>
    </q-table>
  </section>`,
};
