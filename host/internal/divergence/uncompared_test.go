package divergence

import (
	"reflect"
	"strings"
	"testing"
)

// A leader names the members of its version that sum up something else than it does, since when they do,
// until they say that they do the same, are started again, or are no members.
func TestUncomparedMembersAreNamed(t *testing.T) {
	digest := func() uint64 { return 0 }
	d, group := leaderOf(Machine{Version: "v1", Form: "f", Digest: digest})
	group.lives = map[uint64]uint64{2: 1, 3: 1}
	ours := Watch{"f", true}
	has := func(when string, want ...Uncompared) {
		t.Helper()
		if have := d.Uncompared(); len(have)+len(want) > 0 && !reflect.DeepEqual(have, want) {
			t.Errorf("%s: %+v\nwant %+v", when, have, want)
		}
	}
	says := func(from uint64, version string, w Watch) {
		d.Receive(from, &Report{Group: 1, Options: d.options, Version: version, Watch: w})
	}
	has("nothing was heard")
	says(2, "v1", ours)
	says(3, "v2", Watch{"g", false})
	has("one watches the same, the other one has another version")
	group.now = 5
	says(2, "v1", Watch{"g", true})
	group.now = 6
	says(3, "v1", Watch{"", false})
	group.now = 7
	says(2, "v1", Watch{"g", true})
	second, third := Uncompared{2, Watch{"g", true}, ours, 5, 1}, Uncompared{3, Watch{}, ours, 6, 1}
	has("another form, and nothing", second, third)
	group.leader = 2
	has("another member leads")
	group.leader, group.members = 1, []uint64{1, 2}
	has("one was removed", second)
	group.members, group.lives[2] = []uint64{1, 2, 3}, 2
	has("the other one was started again", third)
	says(2, "v1", ours)
	has("and watches the same", third)
	says(3, "v1", Watch{"f", false})
	has("one has no digest", Uncompared{3, Watch{"f", false}, ours, 7, 1})
	says(3, "v1", ours)
	has("all watch the same")

	d, _ = leaderOf(Machine{})
	says(2, "", ours)
	has("only the leader watches nothing", Uncompared{2, ours, Watch{}, 0, 0})
	d = &Comparison{}
	has("a group without commands")
}

// Forms of any length have short names, and other forms have other names.
func TestFormsHaveShortNames(t *testing.T) {
	long := strings.Repeat("f", MaxForm)
	for _, row := range []struct {
		form string
		same bool
	}{{"", true}, {"f", true}, {long, true}, {long + "a", false}} {
		if name := nameOf(row.form); name == row.form != row.same || len(name) > MaxForm {
			t.Errorf("%q is named %q", row.form, name)
		}
	}
	if nameOf(long+"a") == nameOf(long+"b") {
		t.Error("two forms have one name")
	}
}
