package merge3

// run is a changed run of lines, without lines between two unchanged ones.
type run struct {
	*version
	Span
}

func (v *version) firstRun() run { return run{v, Span{0, v.runEnd(0)}} }

// next moves on to the next run, if there is one.
func (r *run) next() bool {
	if r.End == len(r.lines) {
		return false
	}
	r.Start = r.End + 1
	r.End = r.runEnd(r.Start)
	return true
}

// previous moves back to the previous run, if there is one.
func (r *run) previous() bool {
	if r.Start == 0 {
		return false
	}
	r.End = r.Start - 1
	r.Start = r.End
	for r.Start > 0 && r.changed[r.Start-1] {
		r.Start--
	}
	return true
}

func (r *run) isEmpty() bool { return r.Start == r.End }

// up moves the run up by a line, if the text stays the same, and joins it with one that it meets.
func (r *run) up() bool {
	if r.Start == 0 || r.lines[r.Start-1] != r.lines[r.End-1] {
		return false
	}
	r.Start, r.End = r.Start-1, r.End-1
	r.changed[r.Start], r.changed[r.End] = true, false
	for r.Start > 0 && r.changed[r.Start-1] {
		r.Start--
	}
	return true
}

// down is up in the other direction.
func (r *run) down() bool {
	if r.End == len(r.lines) || r.lines[r.Start] != r.lines[r.End] {
		return false
	}
	r.changed[r.Start], r.changed[r.End] = false, true
	r.Start, r.End = r.Start+1, r.runEnd(r.End+1)
	return true
}

// slide moves each changed run of v to where the other version has a change, too, or else as far
// down as it goes. When the budget is used up, the rest stays where it is.
func (v *version) slide(other *version, work *budget) {
	r, o := v.firstRun(), other.firstRun()
	for {
		if !r.isEmpty() && !work.isUsedUp() {
			r.settle(&o, work)
		}
		if work.ended() || !r.next() {
			return
		}
		o.next()
	}
}

// settle moves one run; o is the run of the other version at the same place.
func (r *run) settle(o *run, work *budget) {
	highest, matches := 0, false
	for length := -1; length != r.End-r.Start; {
		length = r.End - r.Start
		for r.up() {
			work.use(1)
			o.previous()
		}
		highest, matches = r.End, !o.isEmpty()
		for r.down() {
			work.use(1)
			o.next()
			matches = matches || !o.isEmpty()
		}
	}
	if r.End == highest || !matches {
		return
	}
	for o.isEmpty() {
		r.up()
		o.previous()
	}
}
