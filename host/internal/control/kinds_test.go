package control

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/transport"
)

// given lists each number that a record ever had. Rows are added and none is changed: a host of another
// version may still say what it meant.
var given = map[byte]string{
	1: "greeting", 2: "refusal", 4: "stranger", 5: "removed",
	16: "applied question", 17: "applied answer",
	24: "forward", 25: "forward refusal",
	32: "read question", 33: "read answer",
	40: "report", 41: "stop", 42: "finding",
	48: "snapshot offer", 49: "snapshot ask", 50: "snapshot block", 51: "snapshot end",
	56: "plan request", 57: "plan answer", 58: "roster question", 59: "roster answer",
	60: "addresses", 61: "join refused", 62: "view question", 63: "view answer",
	64: "load question", 65: "load answer", 66: "moved", 67: "settings",
	72: "object question", 73: "object answer",
	80: "version question", 81: "version answer",
}

func TestNumbersAreNeverReused(t *testing.T) {
	for i, r := range Records {
		if given[r.Kind] != r.Name {
			t.Errorf("record %q has number %d, which was given to %q", r.Name, r.Kind, given[r.Kind])
		}
		if i > 0 && r.Kind <= Records[i-1].Kind {
			t.Errorf("record %q with number %d follows number %d", r.Name, r.Kind, Records[i-1].Kind)
		}
	}
	if len(Records) != len(given) {
		t.Errorf("there are %d records, and %d numbers were given", len(Records), len(given))
	}
}

// The home of a record is the only file of host that has its form: its number in a comment, and then its
// fields.
func TestEachRecordHasOneHome(t *testing.T) {
	texts := map[string]string{}
	for _, dir := range []string{"../..", ".."} {
		walk(t, dir, texts)
	}
	for _, r := range Records {
		form := regexp.MustCompile(`(?m)^//.*\b(` + formName(r.Name) + `)\b[^│\n]*\b` + strconv.Itoa(int(r.Kind)) + ` │`)
		var homes []string
		for name, text := range texts {
			if form.MatchString(text) {
				homes = append(homes, name)
			}
		}
		if !slices.Equal(homes, []string{r.Home}) {
			t.Errorf("record %q (%d) has its form in %v, want %s", r.Name, r.Kind, homes, r.Home)
		}
	}
}

// formName matches what the comment of a form calls a record: all its words, or the end of them.
func formName(name string) string {
	words := strings.Fields(name)
	return name + "|" + words[len(words)-1]
}

func walk(t *testing.T, dir string, texts map[string]string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := dir + "/" + e.Name()
		switch {
		case e.IsDir() && dir == "..":
			walk(t, name, texts)
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			home := "host/" + strings.TrimPrefix(name, "../../")
			if rest, is := strings.CutPrefix(name, "../"); is && !strings.HasPrefix(rest, "..") {
				home = "host/internal/" + rest
			}
			texts[home] = string(text)
		}
	}
}

// A record comes in its kind of frame and with at most its bytes. Whatever else comes is refused.
func TestValidate(t *testing.T) {
	kinds := []transport.Kind{transport.Control, transport.Bulk}
	for kind := range 256 {
		at := slices.IndexFunc(Records[:], func(r Record) bool { return r.Kind == byte(kind) })
		for _, as := range kinds {
			have := Validate(as, []byte{byte(kind)})
			if want := at >= 0 && slices.Contains(Records[at].As, as); (have == nil) != want || have != nil && !errors.Is(have, ErrBad) {
				t.Errorf("kind %d as %v: %v", kind, as, have)
			}
		}
	}
	if err := Validate(transport.Control, nil); !errors.Is(err, ErrBad) {
		t.Errorf("a body of no bytes: %v", err)
	}
	for _, r := range Records {
		if r.Max == 0 {
			continue
		}
		body := make([]byte, r.Max+1)
		body[0] = r.Kind
		if err := Validate(r.As[0], body[:r.Max]); err != nil {
			t.Errorf("a record %q with all its bytes: %v", r.Name, err)
		}
		if err := Validate(r.As[0], body); !errors.Is(err, ErrBad) {
			t.Errorf("a record %q that is larger than its bound: %v", r.Name, err)
		}
	}
}
