package structure

import (
	"fmt"
	"slices"
	"testing"
)

// The words that this repository does not use, each with what to write instead. STYLE.md, *Language*, says
// why: a colleague who reads English as a second language must understand a sentence at the first reading. A
// line of this table is here because a review found the construction in our comments, most of them often.

// phrase is a construction that no comment, string literal or document may hold.
type phrase struct {
	pattern string // a regular expression; a line break in a comment is one space
	instead string
	hit     string // a text that it must find
	miss    string // a text that it must not find
}

// code is what comments must not call a person.
const code = `leader|follower|candidate|voter|learner|host|node|member|peer|group|worker|goroutine|caller|reader|writer|` +
	`appender|process|store|log|proposer|client`

// units are what comments count.
const units = `bytes?|messages?|writes?|syncs?|entry|entries|segments?|records?|copy|copies|rounds?|ticks?|files?|blocks?|` +
	`reads?|votes?|commands?|turns?|lines?|runs?|terms?|batch|batches|appends?`

var phrases = []phrase{
	// Possession.
	{`\b[Tt]he own\b`, `its X, or this host's X`, `waits for the own disk`, `waits for its own disk`},
	{`\b(?:[Aa]n|of|with|by) own\b`, `an X of its own`, `runs on an own goroutine`, `runs on a goroutine of its own`},
	// Persons that are code, and clauses without a noun.
	{`(?i)\b(?:he|she|him|his|her|hers|himself|herself)\b`, `it, its, or the noun`, `until he calls done`, `until the caller calls done`},
	{`\b(?:[Ss]omebody|[Nn]obody|[Aa]nybody|[Ee]verybody)(?:'s)?\b`, `name the caller, the goroutine, the user`, `nobody else opens it`, `no other process opens it`},
	{`\b(?:[Ww]hoever|[Ww]homever)\b`, `the caller that, the reader that, anyone who (people only)`, `whoever holds mu`, `whichever group holds it`},
	{`\b(?:for|from|to|with|by|than|at|behind) who\b`, `for a caller that, for the one that`, `Term for who holds mu`, `a question of who may vote`},
	{`(?:^|[.:;] )Who (?:keeps|makes|holds|reads|waits|takes|has|wants|calls|comes|knows|asks|needs|lacks|writes|sees|says)\b`, `A reader that keeps, A caller that holds`, `Who keeps one entry keeps the array.`, `Who may vote: the rules`},
	{`\b(?:registers|answers|answer|tells|wakes|asks|hears) who\b`, `registers the client that`, `registers who waits`, `says who wrote it`},
	{`\bwho (?:is|are|was|were) (?:not )?(?:told|asked|answered|heard)\b`, `a caller that learns nothing, and the like`, `ahead of who needs it and who is not told`, `people who are new here`},
	{`\b(?:` + code + `)s?,? who\b`, `which, that`, `the leader, who hands over`, `the leader, which hands over`},
	{`\b(?:one|others|all|any|some|each) who\b`, `the one that, or the noun`, `the one who asked`, `the one that asked`},
	// Verbs with a trailing particle, as in German.
	{`\b(?:go|goes|going|gone|went) on with\b`, `continue with`, `if the segment is gone on with`, `continues with the segment`},
	{`\b(?:saw|sees|seen|see) to (?:it|a|the|that|this|single)\b|\b(?:saw|seen) to[.,;]`, `ensures, has ensured`, `that findRoom saw to.`, `seen by others`},
	{`\bpass(?:es|ed|ing)? the (?:\w+ ){1,3}by\b`, `bypasses`, `writes that pass the page cache by`, `passes the page to Write`},
	{`\blet(?:s|ting)? go\b`, `releases, drops, frees`, `and lets go of mu`, `lets a goroutine run`},
	{`\btak(?:es?|en|ing) away\b|\btook away\b`, `removes`, `takes the mark away? it takes away the choice`, `takes the lock`},
	{`\bg(?:ives?|iven|ave|iving) back\b`, `returns, frees, releases`, `segments are given back`, `returns the segment`},
	{`\bturn(?:s|ed)? (?:it |them )?round\b`, `reverses, is reversed`, `a crash can turn round`, `a turn around midnight`},
	{`\b(?:puts? (?:\w+ ){0,3}to rest|let (?:\w+ )?rest)\b`, `closes, shrinks: say which`, `put a sealed segment to rest`, `encryption at rest`},
	{`\bmak(?:es?|ing) do\b|\bmade do\b`, `needs no, does not use`, `this package makes do without`, `a package without imports`},
	{`\bbe(?:come|comes|came) of\b`, `what happens to`, `what becomes of it`, `becomes one of three`},
	{`\bc(?:omes?|ame) of (?:it|that|a|the)\b`, `results from, follows`, `nothing may come of it`, `comes from the log`},
	{`\bmakes? of\b`, `turns into, the result of`, `what a change makes of a configuration`, `a segment made of blocks`},
	{`\b(?:is|are|was|were|be|been) (?:not )?told of\b|\b(?:tells?|telling) of\b`, `learns of, receives, reports`, `the Progress is told of both scans`, `the client is told why`},
	// The infinitive of duty, and of what is available.
	{`\b(?:is|are|was|were) (?:not )?to be\b`, `must be, will be, should be; or a plain verb`, `nothing below it is to be read`, `it is about to be read`},
	{`\bto be (?:had|got)\b|\b(?:may|can|could) be (?:had|got)\b`, `available, can be read again`, `where that is not to be had`, `where that is not available`},
	{`\b(?:have|has|had|get|gets|got) again\b`, `recover, obtain again: say how`, `data that one can have again`, `has it twice`},
	{`\bshall\b`, `must, will, should`, `the next turn shall wait`, `the next turn should wait`},
	// Quantities.
	{`\bso (?:many|much) of\b`, `n of, as much of`, `keeps so many of the writes`, `not so many that it matters`},
	{`\b(?:so|that) (?:many|much) (?:` + units + `)\b`, `n bytes, n entries`, `records of so many bytes`, `n bytes of records`},
	{`\b(?:one|a|an|each|two|no|n) (?:` + units + `) (?:more|less)\b(?: than)?`, `one more X, one X fewer`, `and one message more`, `a record more than 1 GiB away`},
	{`\bat the (?:least|most|latest|earliest)\b`, `at least, at most`, `takes at the least 48 bytes`, `takes at least 48 bytes`},
	{`\bfrom (?:\w+|\w+ \w+|the \w+ \w+) on(?:[.,;:)]|$| (?:and|or|is|are|was|were)\b)`, `starting at, from X onwards`, `the bytes from off on.`, `the bytes starting at off`},
	{`\b(?:in|for) want of\b`, `for lack of, because there is no`, `failed for want of room`, `failed because the disk is full`},
	{`\bbut for\b`, `except, apart from`, `empties the buffer but for the last block`, `not for us but from us`},
	{`\bwhat of (?:a|an|the|it|is|this|many)\b`, `which part of`, `what of the log is kept`, `which part of the log is kept`},
	// Sentences that begin with their object.
	{`(?:^|[.:;] )That (?:there|it|nothing|they|none) (?:is|was|are|were|has|had)\b`, `put the main clause first`, `That there is one, findRoom saw to.`, `That is why.`},
	{`(?:^|[.;] )Of (?:any|each|those|what|all|two|every) [a-z]+\b`, `put the subject first`, `Of any other the link says where it ends.`, `Of course. Of ours: nothing`},
	{`(?:^|[.;] )So that (?:is|are|it)\b`, `So the bound is, It is thus`, `So that is twice what was unstable.`, `twice, so that it fits`},
	{`\b[Ww]here (?:that|this) is not\b|\b[Ww]here there (?:is|was|are|were) (?:no|none|not)\b`, `if there is no, if not`, `Where there is none, it gave up.`, `where the log is`},
	{`\b(?:is|are|was|were) not so(?:[.,;:)]| any more|$)|\bif that is so\b`, `say what is not true`, `what t says of it that is not so`, `it is not so much slow as idle`},
	// Things that stand and lie.
	{`\b(?:stands?|stood|standing) (?:in|at|behind|beside|after|before|there|where|outside)\b(?: for\b)?`, `is in, is after; begins at`, `what stands in the segment`, `channels stand in for a network`},
	{`\b(?:lies?|lay) (?:in|on|at|behind|beside|there)\b`, `is in, is on`, `entries that lie behind one another`, `sim lies above host`},
	{`\b(?:is|are|was|were|be|stands?) in the way\b`, `blocks, prevents`, `it was in the way of the next attempt`, `in the way that raft does`},
	{`\bthat (?:is|are|was|were) there\b`, `that exists`, `commands that are there`, `the tests that are slow`},
	// Old or rare words, where a common one does.
	{`(?i)\b(?:anew|thereof|therein|thereby|thereupon|whereof|wherein|whereby|hitherto|henceforth|hereby|herein|lest|ere|till|whence|thence|albeit|whilst|amongst|in vain)\b`, `again; in it; until; for nothing: the common word`, `begins the group anew`, `begins the group again`},
	{`\b(?:used?|uses|using) again\b`, `reused, reuses`, `the slice is used again`, `the slice is reused`},
	{`\bthat very\b|\bthis very\b`, `the same, this`, `readers get that very array`, `a very large array`},
	{`\bletter (?:by|for) letter\b`, `exactly the same`, `the same list, letter by letter`, `the same list, in the same order`},
	{`\b[Bb]eside the way\b`, `also, not on this path`, `Beside the way: describe.go`, `beside the log`},
	// Poetry.
	{`\blast word\b|\bspoken before\b`, `the first error wins; the final state`, `fail makes err the log's last word`, `the last words of the term`},
	{`\bclaims? a term\b`, `carries a term`, `what it passes on claims a term`, `the message carries a term`},
	{`\bits own reason\b`, `say what triggers what`, `moving cannot be its own reason`, `for a reason of its own`},
	{`\bmail ?bags?\b|\bheralds?\b|\btenures?\b|\blaggards?\b|\bscribes?\b|\bscrutin\w+`, `the glossary's word`, `waits in the mailbag`, `waits in the outgoing queue`},
	{`\bslabs?\b`, `arena`, `carved from a slab`, `carved from an arena`},
}

// citations are references to what a reader of this repository cannot open.
var citations = []phrase{
	{`\bDESIGN(?:\.md)?(?: §|,? section)`, `docs/..., or the thesis's section`, `DESIGN §2 has it`, `the design of the log`},
	{`\b[Dd]urability,? §`, `docs/internals/durability.md §`, `durability §4.8`, `docs/internals/durability.md §4`},
	{`\breferences? \d|\breference/\w+\.md|\.\./shared\b`, `the document in this repository`, `reference 2.12`, `by reference, 2 of them`},
	{`\bthe issue (?:asks|says|demands|wants|has|told|text)\b|\blater issues\b`, `say it here`, `the issue asks for the rest`, `the issue is public: etcd-io/raft #99`},
	{`(?:^|["(.:;,] ?)issue \d{1,2}\b`, `what is missing, in words`, `"issue 11 (the host): gray failures"`, `etcd issue 20418`},
	{`\((?:[Hh]ouse|[Cc]ore|[Ll]og|[Rr]untime) F\d`, `what was seen, in words`, `(Log F11: two for each)`, `(a log F11 keeps)`},
	{`\b(?:house|core|log|runtime|plan)\.md\b`, `docs/track-record.md, or say it here`, `core.md F1`, `docs/divergence.md`},
}

// declared is a name that no declaration may have, because it has several meanings or because the glossary
// has the word.
type declared struct {
	under   string // the folder that the rule is for; "" is all
	kind    string // func (and method), type, field, value (const, var, parameter); "" is any
	pattern string
	instead string
	hit     string
	miss    string
}

var names = []declared{
	{"", "", `^entryIDs?$`, `raftpb.EntryID`, "entryID", "EntryID"},
	{"", "", `^(?:most|least|highest|shortest|longest)[A-Z]\w*$`, `maxX, minX`, "mostReads", "maxReads"},
	{"", "func", `^(?:refuses|implausible|rejects)(?:[A-Z]\w*)?$`, `rejectX`, "refusesSender", "rejectSender"},
	{"", "func", `^Check$`, `Validate`, "Check", "Checked"},
	{"", "", `^settle(?:s|d|[A-Z]\w*)?$`, `answer, publishDurable, updateLast, clearDirty, runIdle: say which`, "settleFence", "unsettled"},
	{"", "", `^(?:room|[a-z]+Room|room[A-Z]\w*)$`, `space: ensureSpace, reserve`, "roomFor", "roomy"},
	{"", "func", `^rest$`, `shrink, closeIdle: say which`, "rest", "restore"},
	{"", "", `^(?:slab|maxSlab|smallSlab|messageSlab)s?$`, `arena`, "slab", "slabby"},
	{"", "", `^heralds?$`, `lossReporter`, "herald", "heralded"},
	{"", "", `^(?:mailbags?|bags?|patient|patience)$`, `outgoing, perPeer, holdEmptyAppends, maxHold`, "mailbag", "baggage"},
	{"", "", `^tenures?$`, `proposals.Ring and its runs`, "tenures", "tenured"},
	{"host", "", `^claims?$`, `pending`, "claim", "claimed"},
	{"host", "type", `^(?:world|stage)$`, `environment; in tests: fixture`, "world", "worlds"},
	{"cmd", "type", `^world$`, `terminal, streams: say what it is`, "world", "worlds"},
	{"", "", `^halves$`, `jointVoters`, "halves", "halved"},
	{"", "func", `^place$`, `next (allocate), hashPosition, setPosition: say which`, "place", "placement"},
	{"raft", "field", `^(?:peers|mark)$`, `progress (a leader's table); ackTerm`, "mark", "marks"},
	{"wal", "", `^(?:kindMark|unmarked|marks?|stage|staged|strolls?)$`, `watermark (record), run (index), dirty (fence), plan`, "kindMark", "kindWatermark"},
	{"wal", "field", `^(?:front|goal|freed|stride)$`, `firstNeeded, cleanThrough, freedBytes, indexStride`, "front", "frontier"},
	{"wal", "", `^(?:scrutiny|unread|Mending|stranger)$`, `inspectionPass, beyondDamage, RepairAnswer, unknownFile`, "Mending", "Amending"},
	{"wal", "", `^[Ii]ncarnation$`, `generation: an incarnation is the random id of a directory`, "Incarnation", "incarnations"},
	{"sim", "type", `^incarnation$`, `life: an incarnation is the random id of a directory`, "incarnation", "incarnations"},
	{"vfs", "", `^(?:thing|litter)s?$`, `unsyncedChange, staleBytes`, "thing", "something"},
	{"", "", `^(?:scribes?|lone)$`, `say what it is`, "scribe", "alone"},
	{"", "type", `^\w+(?:Impl|Manager|Helper)$`, `the noun`, "logManager", "managed"},
}

// folders are words of the glossary that a declared name may hold only in the folders of their concept (and
// below them; "." is the root folder itself). A word whose concept does not exist yet is kept free for its folder.
var folders = map[string][]string{
	"Arena":     {"raft"},
	"Cursor":    {"raft", "host", "sim", "tests", "server"},
	"Fence":     {"wal", "host", "examples", "tests/compare/others/foreign/journal"},
	"Lane":      {"host"},
	"Lease":     {".", "raft", "host", "internal", "sim", "examples", "cmd", "server"},
	"Nemesis":   {"sim"},
	"Receipt":   {".", "host", "sim", "examples", "cmd"},
	"Salt":      {"wal"},
	"Salvage":   {"wal"},
	"Shard":     {"host"},
	"Watermark": {"wal"},
}

// A construction is found across the lines of a comment, on its own line; not in code, and not in a code
// span.
func TestWordsAreFoundWhereTheyAre(t *testing.T) {
	const source = "package p\n\n// x waits for the\n// own disk.\nvar theOwn = `a mail\nbag`\n"
	want := []string{"x.go:3: \"the own\"", "x.go:5: \"mail bag\""}
	const document = "# T\n\nIt waits for the\nown disk, not for `the own`.\n\n| one | the own |\n"
	want = append(want, "x.md:3: \"the own\"", "x.md:6: \"the own\"")
	var have []string
	for _, f := range slices.Concat(inPassages("x.go", goPassages(t, "x.go", []byte(source))),
		inPassages("x.md", documentPassages(document))) {
		have = append(have, fmt.Sprintf("%s:%d: %s", f.file, f.line, f.what))
	}
	if !slices.Equal(have, want) {
		t.Errorf("have %q, want %q", have, want)
	}
}
