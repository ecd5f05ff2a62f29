package tcp

import (
	"time"

	"github.com/millrace/millrace/transport"
)

// pace chooses the size of the frames of one link. A pulse waits for a frame, so a frame is what the link
// carries in frameTime. But each frame costs a system call and a wake of its receiver, and a pass over the
// payload that its border cuts. So frames are as large as that allows, from transport.FrameBodyBytes to
// transport.MaxFrameBodyBytes.
//
// The speed is that of the last burst: of what was written with no rest between two frames. The kernel takes
// maxUnsentBytes at once, whatever the link does. So a burst says something when it has twice as much. A
// burst may have no end, and the link may become slow in it: of a long burst the first half is forgotten.
//
// It belongs to the goroutine that writes.
type pace struct {
	isFixed bool             // frames have transport.FrameBodyBytes
	now     func() time.Time // time.Now, except in a test

	size  int       // of a frame; 0: transport.FrameBodyBytes
	began time.Time // when the first large frame of the burst was written, or later; zero: there was none
	bytes int       // of the burst since then
}

// frameTime is how long a frame may keep a pulse waiting, unless the smallest one takes longer.
const frameTime = 2 * time.Millisecond

// maxPaceBytes is how much of a burst says how fast the link is. So behind a frame of 1 MiB that has taken 80
// milliseconds, frames are small, whatever came before.
const maxPaceBytes = 4 << 20

// frameBytes returns the largest body of the next frame.
func (p *pace) frameBytes() int { return max(p.size, transport.FrameBodyBytes) }

// begin begins a burst.
func (p *pace) begin() { p.began, p.bytes = time.Time{}, 0 }

// writes notes that n bytes will be written.
func (p *pace) writes(n int) {
	if !p.isFixed && n >= transport.FrameBodyBytes && p.began.IsZero() {
		p.began = p.now()
	}
}

// wrote notes that n bytes are with the kernel.
func (p *pace) wrote(n int) {
	if p.began.IsZero() {
		return
	}
	if p.bytes += n; p.bytes >= 2*maxUnsentBytes {
		took := p.now().Sub(p.began)
		p.size = sizeAt(p.bytes-maxUnsentBytes, took)
		if p.bytes > maxPaceBytes {
			p.bytes, p.began = p.bytes/2, p.began.Add(took/2)
		}
	}
}

// sizeAt returns the size of a frame for a link that carries n bytes in a time.
func sizeAt(n int, in time.Duration) int {
	carried := float64(n) * float64(frameTime) / float64(max(in, 1))
	frames := int(min(carried, transport.MaxFrameBodyBytes)) / transport.FrameBodyBytes
	return max(frames, 1) * transport.FrameBodyBytes
}
