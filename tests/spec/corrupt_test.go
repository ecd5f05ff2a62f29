package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// corruption is a lie about what the core did. corrupt changes a trace, and returns the event from which it
// is wrong, or 0 if the trace has no such event.
type corruption struct {
	name    string
	corrupt func(*trace) (event int)
}

var corruptions = []corruption{
	{"a commit index is one too high", func(t *trace) int {
		return t.edit(`"hear".*s \|-> <<"leader", \d+, \d+, \d+, (\d+), \d+, \d+, \d+, \d+>>`, +1)
	}},
	{"a term is one too low", func(t *trace) int {
		return t.edit(`"hear".*s \|-> <<"follower", (\d+),`, -1)
	}},
	{"a follower votes for another", func(t *trace) int {
		return t.edit(`"hear".*s \|-> <<"follower", \d+, ([1-9]),`, +1)
	}},
	{"a write begins an entry late", func(t *trace) int {
		return t.edit(`"ready".*write \|-> TRUE.*first \|-> ([1-9]\d*)`, +1)
	}},
	{"a power cut leaves an entry that was not written", func(t *trace) int {
		return t.edit(`"crash".*d \|-> <<\d+, \d+, \d+, \d+, (\d+), \d+>>`, +1)
	}},
	{"an acknowledgement names an entry too many", func(t *trace) int {
		for i, m := range t.messages {
			at := regexp.MustCompile(`"ack", term \|-> \d+, from \|-> (\d+), to \|-> (\d+), idx \|-> (\d+)`).FindStringSubmatchIndex(m)
			if at == nil || m[at[2]:at[3]] == m[at[4]:at[5]] || t.heard[i] == 0 {
				continue
			}
			index, _ := strconv.Atoi(m[at[6]:at[7]])
			if index < 2 {
				continue
			}
			t.messages[i] = fmt.Sprintf("%s%d%s", m[:at[6]], index+1, m[at[7]:])
			return t.waits(i + 1)
		}
		return 0
	}},
	{"a vote leaves before its write is durable", func(t *trace) int {
		// The write with the vote becomes durable after the vote was heard.
		for i, m := range t.messages {
			if !strings.Contains(m, `"grant"`) || t.heard[i] == 0 {
				continue
			}
			ready := t.waits(i + 1)
			if ready == 0 {
				continue
			}
			sync := slices.IndexFunc(t.events[ready:], func(e string) bool {
				return strings.HasPrefix(e, `[k |-> "sync"`) && node(e) == node(t.events[ready-1])
			})
			if sync < 0 || ready+sync+1 > t.heard[i] {
				continue
			}
			t.events = slices.Delete(t.events, ready+sync, ready+sync+1)
			return ready + sync + 1
		}
		return 0
	}},
}

// edit adds to the number in the first event after a third of the trace that matches.
func (t *trace) edit(pattern string, add int) (event int) {
	expression := regexp.MustCompile(pattern)
	for i := len(t.events) / 3; i < len(t.events); i++ {
		e := t.events[i]
		if at := expression.FindStringSubmatchIndex(e); at != nil {
			n, _ := strconv.Atoi(e[at[2]:at[3]])
			t.events[i] = e[:at[2]] + fmt.Sprint(n+add) + e[at[3]:]
			return i + 1
		}
	}
	return 0
}

// waits returns the event that hands a message out with a write, or 0.
func (t *trace) waits(number int) (event int) {
	waiting := regexp.MustCompile(fmt.Sprintf(`wait \|-> \{(?:[^}]*, )?%d[,}]`, number))
	return slices.IndexFunc(t.events, waiting.MatchString) + 1
}

var nodeOf = regexp.MustCompile(`n \|-> (\d+)`)

func node(event string) string { return nodeOf.FindString(event) }
