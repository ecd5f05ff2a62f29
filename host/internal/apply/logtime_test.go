package apply

import (
	"testing"
	"time"
)

// Log time keeps pace with the clock while commands are under way: each stamp is applied a round later.
func TestLogTimeKeepsPace(t *testing.T) {
	var l LogTime
	const round = 10 * time.Millisecond
	type given struct{ stamp, at time.Duration }
	var waiting []given
	for now := time.Duration(0); now <= time.Second; now += time.Millisecond {
		if stamp, due := l.Next(now); due {
			waiting = append(waiting, given{stamp, now})
		}
		for len(waiting) > 0 && now >= waiting[0].at+round {
			l.Observe(waiting[0].stamp, now)
			waiting = waiting[1:]
		}
	}
	if have := l.Last(); have < time.Second-3*round || have > time.Second {
		t.Errorf("after a second of commands the log time is %v", have)
	}
}

// A stamp whose entry is lost, and one of another leader, never make log time go ahead of the clock, nor
// back.
func TestLogTimeNeverRunsAhead(t *testing.T) {
	var l LogTime
	first, _ := l.Next(20 * time.Millisecond) // lost
	l.Observe(5*time.Millisecond, 30*time.Millisecond)
	second, _ := l.Next(50 * time.Millisecond)
	l.Observe(45*time.Millisecond, 60*time.Millisecond)
	third, _ := l.Next(80 * time.Millisecond)
	if first > 20*time.Millisecond || second > 50*time.Millisecond || third > 80*time.Millisecond || second < first || third < second || third < 65*time.Millisecond {
		t.Errorf("stamps %v, %v, %v", first, second, third)
	}
}
