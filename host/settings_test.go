package host

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/internal/control"
)

// A member with other timeouts is named with both values, as a warning, until it comes in another life.
func TestSettingsThatDiffer(t *testing.T) {
	out := &bodyTransport{}
	l := openTestHost(t, 3, WithTransport(out))
	defer func() { _ = l.Close(over()) }()
	l.lead()
	if out.count(2, control.Settings) != 1 || out.count(3, control.Settings) != 1 {
		t.Errorf("hosts 2 and 3 are not told how this one is set: % x", out.bodies)
	}
	l.control(2, l.config.settings().Encode())
	if d := l.group.Explain(); len(d.Warnings) > 0 {
		t.Errorf("host 2 has the same settings: %v", d)
	}
	other := l.config
	other.HeartbeatInterval, other.ElectionTimeout = time.Second, 10*time.Second
	l.control(2, other.settings().Encode())
	d := l.group.Explain()
	if !d.Healthy || len(d.Warnings) != 1 || d.Warnings[0].Code != diagnosis.CodeSettingsDiffer || d.Warnings[0].Member != 2 ||
		!strings.Contains(d.Warnings[0].Evidence, "Config.HeartbeatInterval is 1s on host 2 and 100ms on host 1, Config.ElectionTimeout is 10s on host 2 and 1s on host 1") {
		t.Errorf("host 2 has other timeouts: %v", d)
	}

	l.comesInAnotherLife(t, 2)
	if d := l.group.Explain(); len(d.Warnings) > 0 {
		t.Errorf("host 2 has another life, and has said nothing: %v", d)
	}
	before := l.network.strays.Load()
	l.control(2, []byte{control.Settings, 1})
	l.control(2, []byte{control.Settings, 9, 9})
	if d := l.group.Explain(); l.network.strays.Load() != before+1 || len(d.Warnings) > 0 {
		t.Errorf("half a setting, and one of a later version: %d strays, want 1 more than %d; %v", l.network.strays.Load(), before, d)
	}
}
