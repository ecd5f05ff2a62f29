package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/host/event"
)

// Cause is one thing that is wrong with a group, as far as a member can see.
type Cause struct {
	Code Code
	// Member is the member that the cause is about; 0 if it is this host, or the group as a whole.
	Member uint64
	// Since is for how long it has been so, in time in which this process ran; 0 if that is not known. It is
	// exact to about a heartbeat interval.
	Since time.Duration
	// Evidence is what this host has seen, with numbers. Fix is what an operator can do. Both are for people,
	// without a full stop at the end, and may change with any version.
	Evidence, Fix string
}

// Diagnosis is what one member can say about the health of its group.
type Diagnosis struct {
	Group, Host uint64
	Status      Status
	// Healthy means that there are no causes. Warnings do not count: the group works.
	Healthy          bool
	Causes, Warnings []Cause
	// Leaderless is for how long this host has known no leader; 0 if it knows one. An election takes up to
	// two election timeouts, and is no cause.
	Leaderless time.Duration
}

// Has reports whether a cause or a warning has the code.
func (d Diagnosis) Has(code Code) bool {
	is := func(c Cause) bool { return c.Code == code }
	return slices.ContainsFunc(d.Causes, is) || slices.ContainsFunc(d.Warnings, is)
}

// String is a page for an operator: the verdict first, then each cause with its evidence and what to do, then
// the warnings.
func (d Diagnosis) String() string {
	var b strings.Builder
	switch n := len(d.Causes); n {
	case 0:
		fmt.Fprintf(&b, "group %d, seen from host %d: healthy%s\n", d.Group, d.Host, warned(len(d.Warnings)))
	case 1:
		fmt.Fprintf(&b, "group %d, seen from host %d: not healthy: %s\n", d.Group, d.Host, d.Causes[0].name())
	default:
		names := make([]string, n)
		for i := range d.Causes {
			names[i] = d.Causes[i].name()
		}
		fmt.Fprintf(&b, "group %d, seen from host %d: not healthy, %d causes: %s\n", d.Group, d.Host, n, strings.Join(names, ", "))
	}
	fmt.Fprintf(&b, "  %s\n", d.position())
	for i := range d.Causes {
		fmt.Fprintf(&b, "\n%d. %s", i+1, &d.Causes[i])
	}
	for i := range d.Warnings {
		fmt.Fprintf(&b, "\nwarning: %s", &d.Warnings[i])
	}
	if leader := d.Status.Leader; leader != 0 && leader != d.Host {
		fmt.Fprintf(&b, "\nHost %d leads; it sees how far the other members are.\n", leader)
	}
	return b.String()
}

// String is the cause with its evidence and what to do, on three lines.
func (c *Cause) String() string {
	text := c.name()
	if c.Since > 0 {
		text += fmt.Sprintf(", for %v", Rounded(c.Since))
	}
	return text + fmt.Sprintf("\n   what is seen: %s\n   what to do:   %s\n", c.Evidence, c.Fix)
}

// warned says how many warnings there are.
func warned(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return ", with a warning"
	}
	return fmt.Sprintf(", with %d warnings", n)
}

// name is the code, and the member if it is another one.
func (c *Cause) name() string {
	if c.Member != 0 {
		return fmt.Sprintf("%s (host %d)", c.Code, c.Member)
	}
	return string(c.Code)
}

// position is the state of the member in a line.
func (d Diagnosis) position() string {
	s := d.Status
	text := fmt.Sprintf("term %d", s.Term)
	switch {
	case d.Has(CodeStopped):
		text = "stopped in " + text
	case s.Role == event.RoleLeader:
		text = "leads in " + text
	case s.Leader != 0:
		text = fmt.Sprintf("follows host %d in %s", s.Leader, text)
	case d.Leaderless > 0 && d.Healthy:
		text = fmt.Sprintf("no leader is known for %v, as in any election; %s", Rounded(d.Leaderless), text)
	default:
		text = "no leader is known; " + text
	}
	return fmt.Sprintf("%s; applied %d, committed %d, durable %d, last entry %d", text, s.Applied, s.Committed, s.Durable, s.LastIndex)
}

// rounded leaves three digits or so of a duration.
func Rounded(d time.Duration) time.Duration {
	switch {
	case d > time.Minute:
		return d.Round(time.Second)
	case d > time.Second:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}
