package structure

import (
	"regexp/syntax"
	"strings"
	"testing"
)

// literals returns texts in lower case of which each match of r has at least one; nil if it may have none. To
// look for them first makes the words test ten times as fast.
func literals(r *syntax.Regexp) []string {
	switch r.Op {
	case syntax.OpLiteral:
		return []string{strings.ToLower(string(r.Rune))}
	case syntax.OpCapture, syntax.OpPlus:
		return literals(r.Sub[0])
	case syntax.OpConcat:
		var best []string
		for _, sub := range r.Sub {
			if have := literals(sub); shortest(have) > shortest(best) {
				best = have
			}
		}
		return best
	case syntax.OpAlternate:
		var all []string
		for _, sub := range r.Sub {
			have := literals(sub)
			if have == nil {
				return nil
			}
			all = append(all, have...)
		}
		return all
	}
	return nil
}

func shortest(texts []string) int {
	if len(texts) == 0 {
		return 0
	}
	n := len(texts[0])
	for _, text := range texts {
		n = min(n, len(text))
	}
	return n
}

func mustLiterals(pattern string) []string {
	r, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		panic(err)
	}
	return literals(r.Simplify())
}

func TestLiterals(t *testing.T) {
	for _, c := range []struct{ pattern, want string }{
		{`\bnot the\b`, "not the"},
		{`\b(?:is|was) to be\b`, " to be"},
		{`(?i)\b(?:last|tall)\b`, "last tall"},
		{`a?b*`, ""},
		{`(?:x|y?)`, ""},
	} {
		if have := strings.Join(mustLiterals(c.pattern), " "); have != c.want {
			t.Errorf("%s: %q, want %q", c.pattern, have, c.want)
		}
	}
}
