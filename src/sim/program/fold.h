// SPDX-License-Identifier: Apache-2.0
/* Folding of hosts that do the same at the same time.
 *
 * If every host's ranks run the programs of the first host's ranks, with partners at the same
 * places of a host, and with the same of their ops, then the ranks at one place of all hosts do
 * everything at the same time. One host's ranks then stand for all: a message to a rank of another
 * host is a message to the rank at the same place of this host, over the NIC. With one rank a host
 * this folds ring, recursive doubling and other plans in which all ranks are alike; with more,
 * those of their hierarchies. Trees and plans with a root do not fold: their ranks differ.
 */
#ifndef KOLO_SIM_FOLD_H
#define KOLO_SIM_FOLD_H

#include "sim/program/program.h"

/* Whether one host stands for all. It does not on machines with leaf switches, noise, or a slow
 * rank. Cost: the partners and messages of all ranks. */
bool kolo_sim_folds(const struct kolo_sim_set *set, const struct kolo_sim_place *place);

#endif
