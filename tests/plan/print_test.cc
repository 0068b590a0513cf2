// SPDX-License-Identifier: Apache-2.0
// covers: src/plan/print.c
// Text and pictures of plans.
#include "plan_util.h"

extern "C" {
#include "plan/print.h"
}

namespace
{

std::string Take(kolo_text *text)
{
    const std::string taken = text->chars != nullptr ? text->chars : "";
    kolo_text_free(text);
    return taken;
}

size_t Count(const std::string &text, const std::string &part)
{
    size_t count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
        count++;
    }
    return count;
}

} // namespace

TEST(Print, SaysEachStepOnALine)
{
    const Plan plan = Build(Named("broadcast_chain"), Shape(KOLO_COLL_BROADCAST, 3));
    kolo_text text = {};
    kolo_plan_text(plan.get(), &text);
    const std::string got = Take(&text);
    int steps = 0;
    for (int r = 0; r < 3; r++) {
        steps += plan->rank[r].count;
    }
    EXPECT_EQ(static_cast<size_t>(steps) + 1, Count(got, "\n")) << got;
    EXPECT_EQ(0u, got.find("broadcast_chain, 3 ranks, root 0: ")) << got;
    EXPECT_NE(std::string::npos, got.find("rank 0 lane 0: 0 send to 1 in[0] -> out[0]")) << got;
    EXPECT_NE(std::string::npos, got.find("recv from 1 out[0] -> out[0]")) << got;
}

TEST(Print, NamesFlagsRangesAndDependencies)
{
    kolo_step step = {};
    char text[KOLO_STEP_TEXT];
    step.op = KOLO_RECV_REDUCE;
    step.flags = KOLO_STEP_LEFT | KOLO_STEP_LAST;
    step.peer = 7;
    step.src = kolo_slice_make(KOLO_IN, 2, 3);
    step.dst = kolo_slice_make(KOLO_SCRATCH, 0, 3);
    step.dep = 4;
    kolo_step_print(&step, text);
    EXPECT_STREQ("recv_reduce from 7 in[2..4] -> scratch[0..2] left last after 4", text);
    step.op = KOLO_COPY;
    step.flags = 0;
    step.dep = -1;
    step.src.count = step.dst.count = 0;
    kolo_step_print(&step, text);
    EXPECT_STREQ("copy nothing -> nothing", text);
}

TEST(Print, SummaryCountsStepsAndMessages)
{
    const Plan plan = Build(Named("allreduce_ring"), Shape(KOLO_COLL_ALL_REDUCE, 4));
    kolo_text text = {};
    kolo_plan_summary(plan.get(), &text);
    const std::string got = Take(&text);
    EXPECT_NE(std::string::npos, got.find(" 24 messages, 1 lane, 4 chunks")) << got;
}

TEST(Print, PicturesHaveAnArrowForEachMessage)
{
    for (const kolo_algo *algo : AllAlgos()) {
        const Plan plan = Build(algo, Shape(algo->coll, 8));
        kolo_text text = {};
        ASSERT_EQ(KOLO_OK, kolo_plan_svg(plan.get(), &text)) << kolo_error_text();
        const std::string got = Take(&text);
        size_t messages = 0;
        for (int r = 0; r < 8; r++) {
            for (int i = 0; i < plan->rank[r].count; i++) {
                messages += plan->rank[r].step[i].op == KOLO_SEND;
            }
        }
        EXPECT_EQ(messages, Count(got, "marker-end=")) << algo->base.name;
        EXPECT_EQ(8u, Count(got, "'>rank ")) << algo->base.name;
        EXPECT_EQ(0u, got.find("<svg "));
        EXPECT_EQ(got.size() - 7, got.find("</svg>"));
    }
}
