package host

import (
	"encoding"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/transport/tcp"
)

// Roles are words, in text as in JSON, and are read again.
func TestRolesAreWords(t *testing.T) {
	for state, word := range map[raft.StateType]string{
		raft.StateFollower: "follower", raft.StatePreCandidate: "pre-candidate", raft.StateCandidate: "candidate", raft.StateLeader: "leader",
	} {
		is := diagnosis.Status{Role: roleOf(state)}
		text, err := json.Marshal(is)
		if want := fmt.Sprintf(`"Role":%q`, word); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%v is %s in JSON, %v", state, text, err)
		}
		var again diagnosis.Status
		if err := json.Unmarshal(text, &again); err != nil || again != is {
			t.Errorf("%s is read as %+v, %v", text, again, err)
		}
	}
	if err := new(event.Role).UnmarshalText([]byte("StateLeader")); err == nil {
		t.Error("a word that is no role is read as one")
	}
	if text := event.Role(4).String(); text != "role 4" {
		t.Errorf("a role that does not exist is %q", text)
	}
}

// What has a word as text has it in JSON, too: in all that a method of a host or a group returns or takes,
// and in all events.
func TestWordsAreWordsInJSON(t *testing.T) {
	w := wordWalk{t: t, seen: map[reflect.Type]bool{}}
	for _, of := range []reflect.Type{reflect.TypeFor[*Host](), reflect.TypeFor[*Group]()} {
		for m := range of.NumMethod() {
			f := of.Method(m).Type
			for i := range f.NumOut() {
				w.walk(f.Out(i), of.Method(m).Name)
			}
		}
	}
	if n := countEvents(t, "event"); n != len(someEvents) {
		t.Errorf("package event has %d events, and the list of this test %d", n, len(someEvents))
	}
	for _, event := range someEvents {
		w.walk(reflect.TypeOf(event), "events")
	}
	if !w.seen[reflect.TypeFor[event.Role]()] || !w.seen[reflect.TypeFor[diagnosis.Cause]()] {
		t.Error("the walk has not come by event.Role and Cause")
	}
}

// someEvents has one event of each type.
var someEvents = []event.Event{
	event.Diverged{}, event.GroupFounded{}, event.HostRefused{}, event.MemberRefused{}, event.MembersChanged{}, event.JoinRefused{},
	event.RoleChanged{}, event.LeadershipGivenUp{}, event.GroupStopped{}, event.MachineHalted{}, event.MachineResumed{}, event.DiskFull{},
	event.AuthorityLost{}, event.AuthorityRegained{}, event.RefusedForgotten{}, event.ApplyStalled{}, event.TurnStalled{},
	event.MemberSlow{}, event.MessagesDropped{}, event.SnapshotSent{}, event.SnapshotReceived{}, event.SnapshotInstalled{},
	event.SnapshotPassed{}, event.SnapshotTransferAborted{}, event.SnapshotTaken{}, event.SnapshotFailed{}, event.SnapshotStalled{},
	event.ObjectReceived{}, event.ObjectTransferFailed{}, event.LogEvent{}, event.EventsDropped{}, event.TLSEvent{},
}

// tlsEvents has one event of each type that an event.TLSEvent may hold.
var tlsEvents = []tcp.TLSEvent{tcp.CertificateRefused{}, tcp.CertificateExpires{}, tcp.CredentialsLoaded{}, tcp.CredentialsRefused{}}

var eventMethod = regexp.MustCompile(`(?m)^func \(.*\) is(TLS)?Event\(\)`)

// countEvents counts the types of a package that are events.
func countEvents(t *testing.T, dir string) (n int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n += len(eventMethod.FindAll(text, -1))
	}
	return n
}

type wordWalk struct {
	t    *testing.T
	seen map[reflect.Type]bool
}

func (w *wordWalk) walk(is reflect.Type, from string) {
	if strings.HasPrefix(is.PkgPath(), "github.com/millrace/millrace/raft") {
		return // their text and JSON are those of etcd-io/raft
	}
	if w.seen[is] || !strings.HasPrefix(is.PkgPath(), "github.com/millrace/") && is.Name() != "" {
		return
	}
	w.seen[is] = true
	switch is.Kind() {
	case reflect.Struct:
		for i := range is.NumField() {
			if f := is.Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
				w.walk(f.Type, fmt.Sprintf("%s.%s", is, f.Name))
			}
		}
	case reflect.Map:
		w.walk(is.Key(), from)
		w.walk(is.Elem(), from)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		w.walk(is.Elem(), from)
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if is.Implements(reflect.TypeFor[fmt.Stringer]()) && !is.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
			w.t.Errorf("%v is a word as text and a number or another word in JSON; seen at %s", is, from)
		}
	}
}
