package service

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// measureKeys puts new keys, each once.
func (s *session) measureKeys(ctx context.Context, l Load) (Point, error) {
	before, err := s.c.use()
	if err != nil {
		return Point{}, err
	}
	var next atomic.Int64
	recorders, begin := make([]*recorder, l.Clients), time.Now()
	_ = inParallel(l.Clients, func(i int) error {
		r := newRecorder()
		recorders[i] = r
		for ctx.Err() == nil {
			n := int(next.Add(1)) - 1
			if n >= l.Keys {
				break
			}
			sent := time.Now()
			_, err := s.clients[i%len(s.clients)].Put(ctx, key(longPrefix, n), string(s.value))
			r.add(time.Since(sent), err)
		}
		return nil
	})
	if ctx.Err() != nil {
		return Point{}, context.Cause(ctx)
	}
	took := time.Since(begin)
	after, err := s.c.use()
	return point(recorders, took, 0, before, after), err
}

// measureRestart kills all members, starts them again, and measures until a linearizable read is answered.
func (s *session) measureRestart(ctx context.Context) (Point, error) {
	before := use{} // a new process begins at 0
	for _, p := range s.c.members {
		p.kill()
	}
	r, begin := newRecorder(), time.Now()
	for _, p := range s.c.members {
		if err := p.again(); err != nil {
			return Point{}, err
		}
	}
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		_, err := s.clients[0].Get(attempt, key(longPrefix, 0))
		cancel()
		if err == nil {
			break
		}
		if ended := s.c.err(); ended != nil {
			return Point{}, ended
		}
		if ctx.Err() != nil || time.Since(begin) > startTime {
			return Point{}, fmt.Errorf("no read within %v: %w", time.Since(begin).Round(time.Second), err)
		}
	}
	took := time.Since(begin)
	r.add(took, nil)
	after, err := s.c.use()
	return point([]*recorder{r}, took, 0, before, after), err
}
