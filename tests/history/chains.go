package history

import "fmt"

// Chains returns an error if the values of a key do not follow one another as one chain of predecessors, as
// far as changes say what they have replaced: an Exchange returns it, a Swap or a Delete that took has
// found it. It returns how many such links there are.
//
// Each value of a history is written once (Operation), so it is replaced once at most: two changes that
// have replaced the same value are a lost update, or a change that took effect twice. A value that no
// operation has written, or that one wrote which was refused, comes from nowhere. And the chain agrees with
// the times: an operation that began when a value was certainly replaced does not find it.
func (h History) Chains() (links int, err error) {
	return h.eachKey(func(key History) (int, error) {
		if key.isList() {
			return 0, nil // Lists checks it
		}
		c, err := key.chain()
		if err != nil {
			return 0, err
		}
		return len(c.next), c.check()
	})
}

// chain is what is known of the values of one key.
type chain struct {
	operations History
	writer     map[string]*Operation // of each value
	next       map[string]*Operation // the change that has replaced a value
}

func (h History) chain() (*chain, error) {
	c := &chain{operations: h, writer: map[string]*Operation{}, next: map[string]*Operation{}}
	found := map[string]bool{}
	deletes := false
	for i := range h {
		o := &h[i]
		if value, ok := o.Found(); ok && o.Outcome == Answered {
			found[value] = true
		}
		deletes = deletes || o.Kind == Delete && o.Outcome != Refused
		if !sets(o) {
			continue
		}
		if other := c.writer[o.Value]; other != nil || o.Value == "" {
			return nil, fmt.Errorf("the history cannot be checked: two operations write %q, or one writes no value", o.Value)
		}
		c.writer[o.Value] = o
	}
	for i := range h {
		o := &h[i]
		value, known := replaced(o, found)
		if !known || value == "" && deletes { // a key may be absent several times
			continue
		}
		if other := c.next[value]; other != nil {
			return nil, fmt.Errorf("history: two changes have replaced %q\n  %v\n  %v", value, other, o)
		}
		c.next[value] = o
	}
	return c, nil
}

// replaced returns the value that an operation has certainly replaced. A Swap of unknown outcome whose
// value was found has replaced what it wanted.
func replaced(o *Operation, found map[string]bool) (value string, known bool) {
	switch {
	case o.Kind == Exchange && o.Outcome == Answered:
		return o.Got, true
	case (o.Kind == Swap || o.Kind == Delete) && o.Outcome == Answered && o.Took:
		return o.Want, true
	case o.Kind == Swap && o.Outcome == Unknown && found[o.Value]:
		return o.Want, true
	}
	return "", false
}

// check compares the links with the writers and with the times.
func (c *chain) check() error {
	for i := range c.operations {
		o := &c.operations[i]
		value, ok := o.Found()
		if !ok || value == "" || o.Outcome != Answered {
			continue
		}
		if w := c.writer[value]; w == nil || w.Outcome == Refused {
			return fmt.Errorf("history: no operation has written %q, or one that was refused\n  %v", value, o)
		}
	}
	readers := map[string][]*Operation{} // by the value that they have found, without changes that have replaced it
	for i := range c.operations {
		o := &c.operations[i]
		if value, ok := o.Found(); ok && o.Outcome == Answered && c.next[value] != o {
			readers[value] = append(readers[value], o)
		}
	}
	follows := map[string]bool{} // values that have a predecessor
	for _, o := range c.next {
		if sets(o) {
			follows[o.Value] = true
		}
	}
	seen := 0
	for value := range c.next {
		if follows[value] {
			continue
		}
		n, err := c.walk(value, readers)
		if err != nil {
			return err
		}
		seen += n
	}
	if seen < len(c.next) {
		return fmt.Errorf("history: %d changes have replaced one another in a circle", len(c.next)-seen)
	}
	return nil
}

// walk follows the links from a value that has no known predecessor, and checks the times along them. It
// returns how many links there were.
func (c *chain) walk(value string, readers map[string][]*Operation) (links int, err error) {
	var all []placed
	at := uint64(1)
	if w := c.writer[value]; w != nil && w.Outcome == Answered {
		all = append(all, placed{w, at, true})
	}
	for {
		for _, o := range readers[value] {
			// The absent value comes again if keys are deleted, and a change that did not find what it
			// wanted is a read.
			if value != "" || len(c.operations) > 0 && c.next[""] != nil {
				all = append(all, placed{o, at, false})
			}
		}
		o := c.next[value]
		if o == nil {
			break
		}
		links++
		at++
		if o.Outcome == Answered {
			all = append(all, placed{o, at, true})
		}
		if o.Kind == Delete {
			break // what follows an absent value is not known
		}
		value = o.Value
	}
	return links, inRealTime("places in the chain", all)
}
