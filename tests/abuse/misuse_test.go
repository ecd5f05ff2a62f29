package abuse_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What operators and users do wrong, and what each side prints then. Each mistake is a few lines that make it
// with real hosts over TCP. What they log, return and explain is compared with a page for operators,
// testdata/misuse.md, so the page never says what the program does not. -update writes the page again.
//
// A mistake names the words of the sentence that it waits for, and the whole sentence is on the page. What
// differs from run to run (ports, directories, keys, dates) is replaced by a name in angle brackets. What
// operators read must also say what to do: advice is a part of a sentence of the program, or the test fails.

var update = flag.Bool("update", false, "write testdata/misuse.md again")

const misusePage = "testdata/misuse.md"

// misuse is one mistake.
type misuse struct {
	name, done string
	advice     []string // each is a part of what a side says
	make       func(*scene)
}

// misuses are all mistakes, by what they are about.
var misuses = []struct {
	about string
	all   []misuse
}{
	{"The founding of a cluster and its groups", foundingMisuses},
	{"Addresses and clusters", addressMisuses},
	{"Directories", directoryMisuses},
	{"Join tokens", tokenMisuses},
	{"Changes of the members", memberMisuses},
	{"Hosts that return", returnMisuses},
	{"TLS", tlsMisuses},
	{"Keys of members", keyMisuses},
}

// minMisuses is how many mistakes the page must have at least.
const minMisuses = 30

const misusePreface = `# Mistakes, and what each side says

Each mistake below is made by a test with real hosts (` + "`tests/abuse/misuse_test.go`" + `), and what they say is what they have said there:
lines of their logs at the level of warnings and errors, errors that calls return, and what ` + "`Explain`" + ` finds. What differs from run
to run is in angle brackets: ` + "`<addr 1>`" + ` is the address of host 1, ` + "`<dir 3>`" + ` and ` + "`<dir 3b>`" + ` name the first and the second directory of
host 3. Do not edit this page; ` + "`go test -run TestMisuse -update`" + ` in its directory writes it.
`

// TestMisuse makes each mistake, and compares what is said with the page.
func TestMisuse(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute, and the race detector sees the same paths in other tests")
	}
	text, err := os.ReadFile(misusePage)
	if err != nil && !*update {
		t.Fatal(err)
	}
	want := sectionsOf(string(text))
	page, ran, n := &strings.Builder{}, true, 0
	said := map[string]*scene{}
	t.Run("each", func(t *testing.T) {
		for _, chapter := range misuses {
			for _, m := range chapter.all {
				s := &scene{labels: map[string]string{}}
				said[m.name] = s
				t.Run(m.name, func(t *testing.T) {
					t.Parallel()
					s.T = t
					s.run(m)
					if have := s.section(m); !*update && have != want[m.name] {
						t.Errorf("have\n%s\nwant\n%s", have, want[m.name])
					}
				})
			}
		}
	})
	page.WriteString(misusePreface)
	for _, chapter := range misuses {
		fmt.Fprintf(page, "\n## %s\n", chapter.about)
		for _, m := range chapter.all {
			n++
			ran = ran && len(said[m.name].said) > 0
			fmt.Fprintf(page, "\n%s", said[m.name].section(m))
		}
	}
	switch {
	case n < minMisuses:
		t.Errorf("%d mistakes, want at least %d", n, minMisuses)
	case !ran || t.Failed():
	case *update:
		if err := os.WriteFile(misusePage, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	case page.String() != string(text):
		t.Errorf("%s has other parts than this test; -update writes it", misusePage)
	}
}

// sectionsOf returns the sections of a page by their titles.
func sectionsOf(page string) map[string]string {
	all := map[string]string{}
	for _, part := range strings.Split(page, "\n### ")[1:] {
		part, _, _ = strings.Cut(part, "\n## ")
		title, _, _ := strings.Cut(part, "\n")
		all[title] = "### " + strings.TrimRight(part, "\n") + "\n"
	}
	return all
}

// scene is a mistake while it is made: its hosts, and what was said.
type scene struct {
	*testing.T
	hosts  []*actor
	labels map[string]string // what differs from run to run → its name on the page
	said   []string
}

func (s *scene) run(m misuse) {
	defer s.dump()
	m.make(s)
	if len(s.said) == 0 {
		s.Error("nothing was said")
	}
	if len(m.advice) == 0 {
		s.Error("it is not said what to do")
	}
	for _, a := range m.advice {
		if !slices.ContainsFunc(s.said, func(line string) bool { return strings.Contains(line, a) }) {
			s.Errorf("no side says %q", a)
		}
	}
}

// dump shows all that was logged, if the test has failed.
func (s *scene) dump() {
	shown := map[string]bool{}
	for _, a := range s.hosts {
		for _, line := range a.log.all() {
			if line = s.plain(line); s.Failed() && !shown[line] {
				shown[line] = true
				s.Logf("%s: %s", a.name, line)
			}
		}
	}
}

// section returns the part of the page about a mistake.
func (s *scene) section(m misuse) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "### %s\n\n%s\n\n", m.name, m.done)
	for _, line := range s.said {
		fmt.Fprintf(b, "- %s\n", line)
	}
	b.WriteString("\nWhat to do:\n\n")
	fmt.Fprintf(b, "> %s\n", strings.Join(m.advice, "\n>\n> "))
	return b.String()
}

// says adds a sentence to the page.
func (s *scene) says(who, text string) {
	s.said = append(s.said, fmt.Sprintf("%s: `%s`", who, strings.ReplaceAll(s.plain(text), "`", "'")))
}

// fails adds the error that a call has returned.
func (s *scene) fails(call string, err error, words ...string) {
	s.Helper()
	if err == nil || !containsAll(err.Error(), words) {
		s.Fatalf("%s returns %v, want an error with %q", call, err, words)
	}
	s.says(call+" returns", err.Error())
}

// varying is what differs from run to run and has no label, and what the page says instead.
var varying = []struct {
	text *regexp.Regexp
	name string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "<port>"},
	{regexp.MustCompile(`fingerprint [0-9a-f]{16}`), "fingerprint <hex>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "<date>"},
	{regexp.MustCompile(`at log time [0-9.µmsh]+`), "at log time <time>"},
	{regexp.MustCompile(`(join token|plan) [0-9a-f]{8}\b`), "$1 <hex>"},
	{regexp.MustCompile(`\bkey [0-9a-f]{16}\b`), "key <hex>"},
	{regexp.MustCompile(`by entry \d+ of`), "by entry <n> of"},
	{regexp.MustCompile(`from version \d+ to \d+`), "from version <n> to <n>"},
	{regexp.MustCompile(`speaks from <[^>]*>`), "speaks from <port>"},
	{regexp.MustCompile(`; host \d+ says so`), ""},
	{regexp.MustCompile(`host \d+(, its leader,)? says`), "host <n>$1 says"},
	{regexp.MustCompile(` (repeats|dropped|refused)=\d+`), ""},
	{regexp.MustCompile(` connection=\w+`), ""},
}

// plain replaces what differs from run to run.
func (s *scene) plain(text string) string {
	for _, a := range s.hosts {
		a.learn()
	}
	for _, known := range s.known() {
		text = strings.ReplaceAll(text, known, s.labels[known])
	}
	for _, v := range varying {
		text = v.text.ReplaceAllString(text, v.name)
	}
	return strings.ReplaceAll(text, "\n", " ")
}

// known returns what has a label, the longest first.
func (s *scene) known() []string {
	var all []string
	for k := range s.labels {
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return all
}
