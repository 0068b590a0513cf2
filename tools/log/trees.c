// SPDX-License-Identifier: Apache-2.0
/* Reads trees. */
#include "tools/log/take.h"

#include <string.h>

/* "1/2/-1": the children of a rank. Returns their number; 0: another text. */
static int take_downs(struct kolo_log_line *l, int out[3])
{
    int count = 0;
    for (int i = 0; i < 3; i++) {
        out[i] = -1;
    }
    while (count < 3 && kolo_line_number(l, KOLO_LOG_RANKS, &out[count])) {
        count++;
        if (!kolo_line_skip(l, "/")) {
            break;
        }
    }
    return count;
}

static bool take_arrow(struct kolo_log_line *l)
{
    kolo_line_skip_blanks(l);
    const bool is = kolo_line_skip(l, "->");
    kolo_line_skip_blanks(l);
    return is;
}

/* One rank's place in a tree, written in either direction. */
static bool take_branch(struct kolo_log_line *l, struct kolo_job_branch *out)
{
    int left[3], right[3];
    const int nleft = take_downs(l, left);
    if (nleft == 0 || !take_arrow(l) || !kolo_line_number(l, KOLO_LOG_RANKS, &out->rank) ||
        out->rank < 0 || !take_arrow(l)) {
        return false;
    }
    const int nright = take_downs(l, right);
    if (nright == 0 || (nleft > 1) == (nright > 1)) {
        return false;
    }
    memcpy(out->down, nleft > 1 ? left : right, sizeof left);
    out->up = nleft > 1 ? right[0] : left[0];
    return true;
}

static int highest(const struct kolo_job_branch *b)
{
    return kolo_log_larger(kolo_log_larger(b->rank, b->up),
                           kolo_log_larger(b->down[0], kolo_log_larger(b->down[1], b->down[2])));
}

static kolo_status keep_branch(struct kolo_log *log, const struct kolo_job_branch *branch,
                               int member)
{
    struct kolo_log_member *m = &log->member[member];
    m->most = kolo_log_larger(m->most, highest(branch));
    if (!kolo_job_add_branch(&log->all, branch)) {
        return kolo_log_fail_full(log);
    }
    return kolo_log_note_speaker(log, &log->branch_of, log->all.nbranches, &log->branch_room,
                                 member);
}

kolo_status kolo_log_take_trees(struct kolo_log *log, struct kolo_log_line *l, bool *broken)
{
    struct kolo_job_branch branch;
    struct kolo_log_hint hint = kolo_log_hint_of(KOLO_LOG_TREES);
    int member = -1;
    hint.hash = kolo_hash(0, l->at, (size_t)(l->end - l->at)) | 1; /* 0 is none */
    kolo_log_take_suffix(log, l, &hint);
    for (kolo_line_skip_blanks(l); kolo_line_skip(l, "["); kolo_line_skip_blanks(l)) {
        if (!kolo_line_number(l, KOLO_LOG_CHANNELS, &branch.channel) || branch.channel < 0 ||
            !kolo_line_skip(l, "]")) {
            return KOLO_OK;
        }
        kolo_line_skip_blanks(l);
        if (!take_branch(l, &branch)) {
            *broken = member < 0;
            return KOLO_OK;
        }
        while (l->at < l->end && *l->at != '[') { /* "|up->rank->downs": the same again */
            l->at++;
        }
        if (member < 0) {
            hint.rank = branch.rank;
            hint.most = highest(&branch);
            KOLO_TRY(kolo_log_member_of(log, l, &hint, &member));
        }
        KOLO_TRY(keep_branch(log, &branch, member));
    }
    return KOLO_OK;
}

/* "Tree 0 : -1 -> 0 -> 1/8/-1" */
kolo_status kolo_log_take_tree(struct kolo_log *log, struct kolo_log_line *l, bool *broken)
{
    struct kolo_job_branch branch;
    struct kolo_log_hint hint = kolo_log_hint_of(KOLO_LOG_TREE);
    int member = 0;
    kolo_line_skip_blanks(l);
    if (!kolo_line_number(l, KOLO_LOG_CHANNELS, &branch.channel) || branch.channel < 0) {
        return KOLO_OK;
    }
    kolo_line_skip_blanks(l);
    if (!kolo_line_skip(l, ":")) {
        return KOLO_OK;
    }
    kolo_line_skip_blanks(l);
    *broken = !take_branch(l, &branch);
    if (*broken) {
        return KOLO_OK;
    }
    hint.rank = branch.rank;
    hint.most = highest(&branch);
    hint.channel = branch.channel;
    kolo_log_take_suffix(log, l, &hint);
    KOLO_TRY(kolo_log_member_of(log, l, &hint, &member));
    return keep_branch(log, &branch, member);
}
