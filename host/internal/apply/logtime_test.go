package apply

import (
	"testing"
	"time"
)

// Log time keeps pace with the clock while commands are under way: each stamp is applied a round later.
func TestLogTimeKeepsPace(t *testing.T) {
	var l LogTime
	l.SetLed(true, 0)
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
	l.SetLed(true, 0)
	first, _ := l.Next(20 * time.Millisecond) // lost
	l.Observe(5*time.Millisecond, 30*time.Millisecond)
	second, _ := l.Next(50 * time.Millisecond)
	l.Observe(45*time.Millisecond, 60*time.Millisecond)
	third, _ := l.Next(80 * time.Millisecond)
	if first > 20*time.Millisecond || second > 50*time.Millisecond || third > 80*time.Millisecond || second < first || third < second || third < 65*time.Millisecond {
		t.Errorf("stamps %v, %v, %v", first, second, third)
	}
}

// While no leader is known, log time stands still. A stamp of another host that comes later counts all the
// same.
func TestLogTimeStandsStillWithoutALeader(t *testing.T) {
	var l LogTime
	at := func(now, want time.Duration) {
		t.Helper()
		if got := l.Estimate(now * time.Second); got != want*time.Second {
			t.Errorf("after %d s the log time is %v, want %d s", now, got, want)
		}
	}
	at(100, 0) // not founded
	l.SetLed(true, 100*time.Second)
	at(103, 3)
	l.SetLed(false, 105*time.Second)
	at(200, 5)
	if stamp, _ := l.Next(200 * time.Second); stamp != 5*time.Second {
		t.Errorf("a stamp without a leader is %v, want 5s", stamp)
	}
	l.SetLed(true, 300*time.Second)
	l.SetLed(true, 305*time.Second) // another leader
	at(310, 15)
	l.SetLed(false, 310*time.Second)
	l.Observe(40*time.Second, 320*time.Second) // the others had a leader
	at(330, 40)
	l.SetLed(true, 330*time.Second)
	at(331, 41)
}
