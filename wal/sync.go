package wal

// Sync makes durable everything that was appended before the call, with one fdatasync; if nothing is pending it costs
// nothing. Appends may go on meanwhile and are served by the next Sync, as their bytes may have been written after
// this one began. An error is final.
func (l *Log) Sync() error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()

	l.mu.Lock()
	tail, target := l.tail, position{segment: l.tail.id, off: l.tail.end}
	err := l.unusable()
	idle := target == l.durable
	l.mu.Unlock()
	if err != nil || idle {
		return err
	}

	if err := l.syncSegment(tail); err != nil {
		return err
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.failure(); err != nil {
		return err
	}
	l.advanceDurable(target)
	return nil
}

// syncTail is Sync for somebody who holds mu.
func (l *Log) syncTail() error {
	if l.durable.off == l.tail.end {
		return nil
	}
	if err := l.syncSegment(l.tail); err != nil {
		return err
	}
	l.advanceDurable(position{segment: l.tail.id, off: l.tail.end})
	return nil
}

// advanceDurable moves the durable position up to target, unless a roll has moved it further. mu is held.
func (l *Log) advanceDurable(target position) {
	if !l.durable.before(target) {
		return
	}
	bytes := target.off - l.durable.off // of one segment: a roll syncs the old one to its end
	l.durable = target
	l.stats.syncedBytes.Add(uint64(bytes))
	l.pace.observe(bytes)
	if l.pace.wantsZeros() && l.tail.zeroed.Load() < l.tail.size {
		l.wakeHelper()
	}
}

// syncSegment is the one place that makes records durable.
func (l *Log) syncSegment(s *segment) error {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	if err := l.failure(); err != nil {
		return err // it may have been this file's, told to somebody else
	}
	start := l.opts.Clock.Now()
	err := s.file.Sync()
	l.stats.syncs.Add(1)
	l.stats.syncNanos.Add(uint64(l.opts.Clock.Now() - start))
	if err != nil {
		return l.fail("sync", s, 0, err)
	}
	return nil
}

// seal ends a log that is being closed: everything is synced, and a last mark says so, without which the last batch
// could not be told from a torn tail if the disk spoiled it later. mu is held.
func (l *Log) seal() error {
	if err := l.failure(); err != nil {
		return err
	}
	if err := l.syncTail(); err != nil {
		return err
	}
	if !l.unmarked {
		return nil
	}
	if err := l.mark(); err != nil {
		return err
	}
	return l.syncTail()
}

// mark writes the watermark down, if there is room: put leaves room for one. mu is held.
func (l *Log) mark() error {
	if l.tail.end+recordHead > l.tail.size || l.tail.end == segmentHead {
		return nil
	}
	l.putRecord(header{kind: kindMark}, nil)
	l.unmarked = false
	return l.flush()
}
