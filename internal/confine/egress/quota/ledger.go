package quota

import (
	"maps"
	"sync"
	"time"
)

// Ledger counts what is used of limits. It is safe for concurrent use.
type Ledger struct {
	sets map[string]Set // by secret; "" is the network

	mu      sync.Mutex
	used    map[entry]int64
	buckets map[entry]*Bucket
	told    map[entry]bool
}

// entry is a limit of a Ledger: of a secret, or "" for the network.
type entry struct{ of, name string }

// NewLedger makes a Ledger of the limits of the network, and those of secrets by their names.
func NewLedger(network Set, secrets map[string]Set) *Ledger {
	l := &Ledger{sets: map[string]Set{"": network}, used: map[entry]int64{}, buckets: map[entry]*Bucket{}, told: map[entry]bool{}}
	maps.Copy(l.sets, secrets)
	return l
}

// An Answer says how much may be used.
type Answer struct {
	Granted int64         // of what was asked for
	Wait    time.Duration // before that is used
	Reached *Limit        // why Granted is less than what was asked for
	First   bool          // it is the first time that Reached is told
}

// maxWait bounds how long a new connection waits for its turn.
const maxWait = 10 * time.Second

// Take takes n of a limit of the network, or of the secret of. Of totals it grants what is left,
// and up to more besides. A rate of new connections makes them wait, and refuses those that would
// wait too long.
func (l *Ledger) Take(of, name string, n, more int64, now time.Time) Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit, limited := l.sets[of].Get(name)
	switch {
	case !limited:
		return Answer{Granted: n + more}
	case limit.Per == 0:
		at := entry{of, name}
		granted := min(n+more, limit.Max-l.used[at])
		l.used[at] += granted
		if granted < n {
			return l.reachedLocked(at, limit, granted)
		}
		return Answer{Granted: granted}
	}
	wait, granted := l.bucketLocked(entry{of, name}, limit, now).Take(float64(n), now, maxWait)
	if !granted {
		return l.reachedLocked(entry{of, name}, limit, 0)
	}
	return Answer{Granted: n, Wait: wait}
}

// Request takes one request of a secret, of its total and of its rate, without a wait.
func (l *Ledger) Request(of string, now time.Time) Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	total, counted := l.sets[of].Get(Requests)
	if counted && l.used[entry{of, Requests}] >= total.Max {
		return l.reachedLocked(entry{of, Requests}, total, 0)
	}
	if rate, limited := l.sets[of].Get(Rate); limited {
		if _, granted := l.bucketLocked(entry{of, Rate}, rate, now).Take(1, now, 0); !granted {
			return l.reachedLocked(entry{of, Rate}, rate, 0)
		}
	}
	if counted {
		l.used[entry{of, Requests}]++
	}
	return Answer{Granted: 1}
}

func (l *Ledger) bucketLocked(at entry, limit Limit, now time.Time) *Bucket {
	b := l.buckets[at]
	if b == nil {
		b = NewBucket(limit, now)
		l.buckets[at] = b
	}
	return b
}

func (l *Ledger) reachedLocked(at entry, limit Limit, granted int64) Answer {
	first := !l.told[at]
	l.told[at] = true
	return Answer{Granted: granted, Reached: &limit, First: first}
}

// Bucket paces what a rate allows (a token bucket). It is full at first, with what the rate allows
// in one of its periods. Its user locks.
type Bucket struct {
	size   float64
	speed  float64 // per second
	tokens float64 // below 0: of those who wait
	at     time.Time
}

// NewBucket makes a Bucket of a rate.
func NewBucket(l Limit, now time.Time) *Bucket {
	size := float64(l.Max)
	return &Bucket{size: size, speed: l.perSecond(), tokens: size, at: now}
}

// Take takes n tokens and returns how long to wait before they are used, or takes none if that
// would be longer than most.
func (b *Bucket) Take(n float64, now time.Time, most time.Duration) (wait time.Duration, granted bool) {
	if passed := now.Sub(b.at); passed > 0 {
		b.tokens = min(b.size, b.tokens+passed.Seconds()*b.speed)
		b.at = now
	}
	if missing := n - b.tokens; missing > 0 {
		wait = time.Duration(missing / b.speed * float64(time.Second))
	}
	if wait > most {
		return 0, false
	}
	b.tokens -= n
	return wait, true
}
