package membership

import (
	"encoding/json"
	"errors"
	"testing"
)

// Roles and keys are words in JSON, and are read back.
func TestTextForms(t *testing.T) {
	type member struct {
		Role Role
		Key  Key
	}
	for text, want := range map[string]member{
		`{"Role":"voter","Key":""}`: {Role: Voter},
		`{"Role":"outgoing voter","Key":"01020000000000000000000000000000000000000000000000000000000000ff"}`: {Role: Outgoing, Key: Key{1, 2, 31: 255}},
	} {
		if have, err := json.Marshal(want); err != nil || string(have) != text {
			t.Errorf("%+v is written as %s, want %s (%v)", want, have, text, err)
		}
		have := member{Role: Learner, Key: Key{7}}
		if err := json.Unmarshal([]byte(text), &have); err != nil || have != want {
			t.Errorf("%s is read as %+v (%v)", text, have, err)
		}
	}
	for _, text := range []string{`{"Role":"king"}`, `{"Key":"01"}`, `{"Key":"zz"}`, `{"Key":"01020000000000000000000000000000000000000000000000000000000000ff00"}`} {
		if err := json.Unmarshal([]byte(text), &member{}); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
