//go:build linux

package chaos

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/tests/history"
)

// The verdict on the service. The logs of all members are the same, and their requests make the events that
// each watch has seen. Every acknowledged write is at its revision. Every read has found the state of its
// revision. Each key is linearizable, and revisions never go back in real time. What was refused or cancelled
// because of a compaction is held against those of the log. Each judge also gets a copy of the evidence in
// which something is wrong, and must reject it.
func (s *service) judge() error {
	began := time.Now()
	if err := s.judgeLogs(); err != nil {
		return err
	}
	c := s.clients
	h := c.recorder.History()
	for _, w := range s.watches {
		if err := judgeWatch(w.name, w.responses, s.model, s.endOf(w)); err != nil {
			return err
		}
		s.count(w)
	}
	if err := judgeAnswers(c.writes, c.views, s.model); err != nil {
		return err
	}
	if err := judgeCompactions(c.compactions, c.refusals, c.views, s.model); err != nil {
		return err
	}
	if err := revisions(h).Monotonic(); err != nil {
		return err
	}
	if err := h.Linearizable(perKey); err != nil {
		return err
	}
	n := &s.seen
	n.acknowledged, n.unknown, n.reads, n.revisions = len(c.writes), c.open, len(c.views), int(s.model.revision)
	n.compactions, n.refused = len(s.model.compactions), len(c.refusals)
	for _, v := range c.views {
		if v.call > 0 {
			n.past++
		}
	}
	if n.acknowledged < 200 || n.reads < 100 {
		return fmt.Errorf("only %d writes were acknowledged, and %d reads answered: too little to judge anything", n.acknowledged, n.reads)
	}
	err := s.judgeJudges(h)
	n.judged = time.Since(began)
	return err
}

// endOf returns the revision through which a watch has seen everything when the episode ends. A watch of old
// revisions may have begun again just before.
func (s *service) endOf(w *watch3) int64 {
	if w.old {
		return 0
	}
	return s.last
}

// revisions returns a history in which each operation without an effect is a read: its revision is that of a
// state, which others may have, too.
func revisions(h history.History) history.History {
	of := slices.Clone(h)
	for i := range of {
		if !changes(&of[i]) {
			of[i].Kind = history.Get
		}
	}
	return of
}

func (s *service) count(w *watch3) {
	s.seen.watches++
	s.seen.reconnects += w.reconnects
	for _, r := range w.responses {
		s.seen.events += len(r.events)
		if r.through > 0 {
			s.seen.progress++
		}
		if r.compacted > 0 {
			s.seen.cancelled++
		}
		for i, e := range r.events {
			if i > 0 && r.events[i-1].revision == e.revision {
				s.seen.multiples++
			}
		}
	}
}

// judgeLogs puts the logs together, which compares them, and makes the model of the whole.
func (s *service) judgeLogs() error {
	for _, id := range slices.Sorted(maps.Keys(s.logs)) {
		if err := s.whole.add(s.logs[id].lines); err != nil {
			return fmt.Errorf("the log of host %d: %w", id, err)
		}
		if len(s.logs[id].lines) == 0 {
			return fmt.Errorf("the log of host %d has no line: %s", id, s.logs[id].notes)
		}
	}
	if err := s.whole.complete(); err != nil {
		return err
	}
	s.model, s.seen.compared = newModel(), s.whole.shared
	for _, l := range s.whole.lines {
		if err := s.model.apply(l); err != nil {
			return fmt.Errorf("the log: %w", err)
		}
	}
	if s.model.revision < s.last { // more may come: of requests that their clients have given up
		return fmt.Errorf("the log ends at revision %d, and the last write was acknowledged at %d", s.model.revision, s.last)
	}
	return nil
}

// judgeAnswers holds the answers that clients have got against the log.
func judgeAnswers(writes []write, views []view, m *model) error {
	for _, w := range writes {
		for key, value := range w.values {
			i, found := slices.BinarySearchFunc(m.of[key], w.revision, func(e event, r int64) int { return int(e.revision - r) })
			if !found || m.of[key][i].value != value || m.of[key][i].deleted != (value == "") {
				return fmt.Errorf("lost: %s = %q was acknowledged at revision %d, and the log has no such change", key, value, w.revision)
			}
		}
	}
	for _, v := range views {
		if v.prefix != "" {
			if want := m.all(v.prefix, v.revision); !maps.Equal(want, v.values) {
				return fmt.Errorf("a read of %s at revision %d has found %v, and the log makes %v", v.prefix, v.revision, v.values, want)
			}
			continue
		}
		for key, value := range v.values {
			if want := m.at(key, v.revision); want != value {
				return fmt.Errorf("a read of %s at revision %d has found %q, and the log makes %q", key, v.revision, value, want)
			}
		}
	}
	return nil
}

// judgeJudges plants a lost write, a stale read, and events that were dropped, doubled, torn and promised.
func (s *service) judgeJudges(h history.History) error {
	c := s.clients
	lost := append(slices.Clone(c.writes), write{revision: s.last, values: map[string]string{"key/0/0": "never written"}})
	if judgeAnswers(lost, nil, s.model) == nil {
		return fmt.Errorf("a lost write was accepted")
	}
	stale, err := h.WithStaleRead(s.seed)
	if err != nil {
		return err
	}
	if stale.Linearizable(perKey) == nil {
		return fmt.Errorf("a history with a stale read planted into it was accepted")
	}
	if err := s.plantCompactions(); err != nil {
		return err
	}
	for name, plant := range plants {
		planted := false
		for _, w := range s.watches {
			seen, done := plant(slices.Clone(w.responses), s.model)
			planted = planted || done
			if done && judgeWatch(name, seen, s.model, s.endOf(w)) == nil {
				return fmt.Errorf("a watch with an event that was %s was accepted: %s", name, w.name)
			}
		}
		if !planted && !slices.Contains(rarely, name) {
			return fmt.Errorf("no event could be %s", name)
		}
	}
	return nil
}

// rarely are the plants that not every episode has a place for.
var rarely = []string{"torn", "cancelled without a need", "skipped behind a cancel"}

// plants make a watch wrong. They change the message of the middle that can be changed so.
var plants = map[string]func([]response, *model) ([]response, bool){
	"dropped": func(all []response, _ *model) ([]response, bool) {
		return plantAt(all, 1, func(r response) []response { return []response{{events: r.events[1:]}} })
	},
	"doubled": func(all []response, _ *model) ([]response, bool) {
		return plantAt(all, 1, func(r response) []response { return []response{r, r} })
	},
	"torn": func(all []response, _ *model) ([]response, bool) {
		return plantAt(all, 2, func(r response) []response { return []response{{events: r.events[:1]}, {events: r.events[1:]}} })
	},
	"promised": func(all []response, _ *model) ([]response, bool) {
		return plantAt(all, 1, func(r response) []response { return []response{{through: r.events[0].revision}, r} })
	},
	"cancelled by no compaction": func(all []response, m *model) ([]response, bool) {
		return plantAt(all, 1, func(r response) []response {
			return []response{{compacted: m.revision + 1}, {begins: r.events[0].revision}, r}
		})
	},
	"cancelled without a need": func(all []response, m *model) ([]response, bool) {
		if len(m.compactions) == 0 {
			return all, false
		}
		first := m.compactions[0]
		for k, r := range all {
			if len(r.events) > 0 && r.events[0].revision >= first {
				next := r.events[len(r.events)-1].revision + 1
				return slices.Insert(slices.Clone(all), k+1, response{compacted: first}, response{begins: next}), true
			}
		}
		return all, false
	},
	"skipped behind a cancel": func(all []response, _ *model) ([]response, bool) {
		for k := range len(all) - 3 {
			if all[k].compacted > 0 && all[k+1].begins > 0 && len(all[k+2].events) > 0 && len(all[k+3].events) > 0 {
				return slices.Delete(slices.Clone(all), k+2, k+3), true
			}
		}
		return all, false
	},
}

// plantAt exchanges the first message behind the middle that begins with n events of one revision, and is
// followed by events: what comes next shows what is wrong.
func plantAt(all []response, n int, by func(response) []response) ([]response, bool) {
	for k := range all {
		at := (len(all)/2 + k) % len(all)
		if e := all[at].events; len(e) >= n && e[n-1].revision == e[0].revision && at+1 < len(all) && len(all[at+1].events) > 0 {
			return slices.Concat(all[:at], by(all[at]), all[at+1:]), true
		}
	}
	return all, false
}
