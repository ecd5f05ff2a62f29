package quorum

import "testing"

func TestDescribe(t *testing.T) {
	five := MajorityConfig{11: {}, 2: {}, 3: {}, 4: {}, 5: {}}
	for _, row := range []struct {
		name string
		have string
		want string
	}{
		{"no voter", MajorityConfig{}.Describe(acks{}), "<empty majority quorum>"},
		{"one of whom nothing is known", MajorityConfig{1: {}}.Describe(acks{}), "" +
			"     idx\n" +
			"?      0    (id=1)\n"},
		{"a tie, one unknown, and one known to hold nothing", five.Describe(acks{11: 7, 2: 7, 3: 123456, 5: 0}), "" +
			"         idx\n" +
			"xx>        7    (id=2)\n" +
			"xxxx>  123456    (id=3)\n" +
			"?          0    (id=4)\n" +
			">          0    (id=5)\n" +
			">          7    (id=11)\n"},
		{"two halves that overlap", JointConfig{{1: {}, 2: {}}, {2: {}, 3: {}}}.Describe(acks{1: 3, 2: 2, 3: 1}), "" +
			"       idx\n" +
			"xx>      3    (id=1)\n" +
			"x>       2    (id=2)\n" +
			">        1    (id=3)\n"},
	} {
		if row.have != row.want {
			t.Errorf("%s: have\n%s\nwant\n%s", row.name, row.have, row.want)
		}
	}
}
