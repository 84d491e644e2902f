// How the search weighs what it finds. The words that a page declares (an index entry with "!") score 100. Then come names
// of the reference that are the query, titles, text, and names that it is a part of, which Sphinx would put before the text.
// The glossary's terms are declared too: they come after the page that tells more.
var Scorer = {
  score: ([page, title, anchor, description, score]) => (page === "glossary" ? score / 2 : score),
  objNameMatch: 20,
  objPartialMatch: 3,
  objPrio: { 0: 0, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
