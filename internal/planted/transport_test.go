package planted_test

// transportBugs are bugs in what the transport accepts.
var transportBugs = []bug{
	{name: "large_frames_on_a_slow_link", what: "a connection that has become slow keeps large frames, and pulses wait for them", in: "transport/tcp", found: "TestPaceNeedsALongBurst", edits: []edit{{"transport/tcp/pace.go",
		`p.size = sizeAt(`, `p.size = p.size | sizeAt(`}}},
	{name: "large_frames_to_all", what: "a peer that takes no large frames gets them", in: "transport/tcp", found: "TestLargeFramesNeedTheirVersion", edits: []edit{{"transport/tcp/link.go",
		`class != transport.ClassConsensus || v.version < largeFrames`, `class != transport.ClassConsensus`}}},
	{name: "large_frames_after_a_long_burst", what: "a connection that becomes slow in a long burst keeps large frames, and pulses wait for them", in: "transport/tcp", found: "TestPaceOfABurstWithoutEnd", edits: []edit{{"transport/tcp/pace.go",
		`p.bytes, p.began = p.bytes/2, p.began.Add(took/2)`, `_ = took`}}},
	{name: "large_frames_may_be_silent", what: "a peer that falls silent within a large frame is waited for as long as for sixteen frames", in: "transport/tcp", found: "TestSilenceWithinALargeFrame", edits: []edit{{"transport/tcp/reader.go",
		`since, r.budget = time.Time{}, r.stall`, `since, r.budget = time.Time{}, 16*r.stall`}}},
	{name: "large_frames_on_other_connections", what: "a frame of messages on a connection of another class, larger than its buffer, makes the reader spin without an end", in: "transport/tcp", found: "TestLargeFrameOfAnotherClass", edits: []edit{{"transport/tcp/reader.go",
		`err = r.assembler.Reject(h)`, `_ = r.assembler.Reject(h)`}}},
	{name: "stall_times_for_headers", what: "a frame of 64 KiB has two stall times at its sender, since its header makes it longer", in: "transport/tcp", found: "TestStallTimeOfAFrame", edits: []edit{{"transport/tcp/link.go",
		`const partBytes = transport.FrameBodyBytes + 2<<10`, `const partBytes = transport.FrameBodyBytes`}}},
	{name: "keep_revoked", what: "a host keeps connections whose certificates it would not accept any more", in: "transport/tcp", found: "TestDistrustedConnectionsEnd", edits: []edit{{"transport/tcp/trust.go",
		`func (t *Transport) endDistrusted() {
	for _, id := range t.peerIDs() {`, `func (t *Transport) endDistrusted() {
	if true {
		return
	}
	for _, id := range t.peerIDs() {`}}},
	{name: "short_is_refused", what: "certificate files that cannot be opened for lack of descriptors are said to be refused", in: "transport/tcp", found: "TestCredentialsWaitForADescriptor", edits: []edit{{"transport/tcp/trust.go",
		`	if vfs.IsShort(err) {
		t.lacks(err)`, `	if vfs.IsShort(err) && false {
		t.lacks(err)`}}},
	{name: "any_ca", what: "a host accepts certificates that no CA has signed, or that have expired", in: "transport/tcp", found: "TestCertificatesAreRefusedAtBothEnds", edits: []edit{{"transport/cert/verify.go",
		`refuse); err != nil {`, `refuse); err != nil && false {`}}},
	{name: "any_member", what: "a host accepts the certificate of another member", in: "transport/tcp", found: "TestCertificatesAreRefusedAtBothEnds", edits: []edit{{"transport/cert/verify.go",
		`case named != id:`, `case named != id && false:`}}},
	{name: "queue_of_all_or_nothing", what: "a queue to a peer never takes a message that is larger than the queue", in: "transport/tcp", found: "TestMessageLargerThanTheQueue", also: []judge{{in: "sim", test: "TestLoweredMemory", args: "-lowerings 1", says: "has not elected a leader, committed and converged"}}, edits: []edit{{"transport/kind.go",
		`return waiting <= bound`, `return false`}}},
	{name: "sum_of_another_length", what: "a frame's checksum is joined with the length of another payload", in: "transport", found: "TestBatchesAreFrames", edits: []edit{{"transport/sums.go",
		`sum.join(crcjoin.Rest(p.Sum, c.begun, n), n)`, `sum.join(crcjoin.Rest(p.Sum, c.begun, n), int(p.Bytes))`}}},
	{name: "checksums_not_compared", what: "a follower takes what a bad frame holds", in: "transport", found: "TestRotBehindTheSumIsRefused", edits: []edit{{"transport/sums.go",
		`if bad := b.check.end(); bad != nil {`, `if bad := b.check.end(); bad != nil && false {`}}},
	{name: "last_frame_not_compared", what: "a follower does not compare the checksum of a body's last frame", in: "transport", found: "TestFlippedBitsOfAMessage", edits: []edit{{"transport/sums.go",
		`	c.pass(len(c.body))
	c.close()`, `	c.pass(len(c.body))`}}},
	{name: "joined_body_is_reused", what: "the memory of a large command is that of the next body, too", in: "transport", found: "TestLargeEntryKeepsItsBody", edits: []edit{{"transport/sums.go",
		`		b.joined.bytes = nil
`, ``}}},
	{name: "part_of_a_frame_twice", what: "a frame that the socket has taken in part continues with bytes that it has", in: "transport/tcp", found: "TestAfterPieces", edits: []edit{{"transport/tcp/link.go",
		`		pieces[0] = pieces[0][n:]
`, `		pieces[0] = pieces[0][n-1:]
`}}},
}
