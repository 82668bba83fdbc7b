package fusefs

import "testing"

func TestViewsShareTheWatches(t *testing.T) {
	for _, views := range []int{1, 2, 5, maxViews - 1} {
		const all = 1000
		sum := 0
		for number := 1; number <= views; number++ {
			share := watchShare(all, number, views)
			if share <= 0 || number > 1 && share > watchShare(all, 1, views) {
				t.Errorf("view %d of %d has %d of %d", number, views, share, all)
			}
			sum += share
		}
		if sum > all {
			t.Errorf("%d views have %d of %d", views, sum, all)
		}
	}
}
