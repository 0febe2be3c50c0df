"""Sectors that run networks: energy, telecom, water, rail."""

from scenarios.company.sectors.sector import build_sector

SECTORS = (
    build_sector(
        "energy",
        "Gridwell, Northern Light Power, Talon Energy",
        "{company} supplies power. Home solar feeds back more than its control room can balance, "
        "and the regulator has set a date.",
        options=(
            "balancing service of the grid operator, own balancing platform, battery park with "
            "control, flexible tariffs with control boxes, joint control room"
        ),
        components=(
            "meter collector, load forecast, dispatch engine, feeder relay, market link, alarm "
            "console, weather feed, archive node"
        ),
        people="Aksel, Birte, Cem, Dora, Erik",
        packages=(
            "feeder survey, relay fitting, forecast training, market approval, control room drill, "
            "tariff letters, field test, switch on"
        ),
        assets="dispatch commands, feeder relays, market account, customer meters, control room",
        controls=(
            "forged meter reading: meter signatures, open relay port: relay firewall, phished "
            "operator: operator keys, vendor remote access: access broker, wrong forecast: second "
            "forecast, copper theft: fence sensors, storm on feeder: line inspection, fake market "
            "bid: bid limits, stale backup: weekly restore"
        ),
        items="balancing power, weather data, relay service, field crews, data lines, reserve contract",
    ),
    build_sector(
        "telecom",
        "Clearcall, Summit Mobile, Fjord Telecom",
        "{company} is a mobile carrier. The billing system cannot price the new data tariffs that "
        "rivals already sell.",
        options=(
            "billing as a service, billing suite on own servers, upgrade of the old system, billing "
            "of the parent group, real time charging platform"
        ),
        components=(
            "usage collector, rating engine, balance store, invoice run, tariff catalogue, partner "
            "feed, payment link, self care app"
        ),
        people="Fatou, Gustav, Helena, Ismail, Jorun",
        packages=(
            "tariff modelling, balance migration, roaming test, invoice layout, dealer training, "
            "number porting, dual run, market launch"
        ),
        assets=("call records, prepaid balances, subscriber identities, roaming account, dealer commissions"),
        controls=(
            "cloned sim card: sim checks, dealer fraud: dealer scoring, signalling attack: signalling "
            "firewall, leaked call records: record masking, balance tampering: balance audit, fake "
            "support call: caller proof, number hijack: porting lock, stolen mast battery: mast "
            "alarms, weak roaming partner: roaming limits"
        ),
        items=(
            "rating licences, mast rental, invoice printing, roaming volume, call centre seats, "
            "spectrum tests"
        ),
    ),
    build_sector(
        "water",
        "Clearwater Works, Delta Water Board, Springdale Utilities",
        "{company} supplies drinking water. A quarter of it is lost in old pipes, and a dry "
        "summer is expected.",
        options=(
            "sensor network on the mains, pressure control by district, leak search by contract, "
            "renewal of the worst mains, shared control centre"
        ),
        components=(
            "pump controller, pressure sensor hub, district valve, leak model, control desk, tank "
            "gauge, radio relay, lab link"
        ),
        people="Karim, Livia, Marek, Nora, Otto",
        packages=(
            "mains survey, sensor fitting, valve fitting, model tuning, crew training, tank "
            "inspection, night trial, district switch"
        ),
        assets="pump stations, drinking water quality, district valves, customer data, chlorine store",
        controls=(
            "open pump link: pump firewall, default valve password: valve keys, broken fence: fence "
            "patrol, wrong dosage: dosage interlock, pump failure: standby pump, spoofed sensor: "
            "sensor cross check, flooded shaft: shaft seals, lost key ring: electronic locks, power "
            "cut: diesel set"
        ),
        items="pressure sensors, pipe clamps, dosing agent, lab tests, excavator days, radio plan",
    ),
    build_sector(
        "rail",
        "Valley Rail, Coastline Trains, Metroline",
        "{company} runs commuter trains. The signalling computers of its busiest line reach the "
        "end of their approval.",
        options=(
            "digital signal boxes, overhaul of the present boxes, radio based signalling, signalling "
            "by the network owner, phased mixed signalling"
        ),
        components=(
            "signal box, axle counter, track relay, route computer, driver display, timetable server, "
            "radio block, diagnosis node"
        ),
        people="Petra, Ravi, Sofie, Tomas, Ulla",
        packages=(
            "track survey, cable laying, route tables, safety approval, driver training, night test, "
            "points renewal, line opening"
        ),
        assets="route commands, driver radio, ticket revenue, passenger data, depot yard",
        controls=(
            "cable theft: cable alarms, radio jamming: second channel, forged maintenance order: "
            "order signing, unlocked trackside box: box sensors, overheated relay room: cooling unit, "
            "phished dispatcher: dispatcher keys, trespass on track: track cameras, faulty axle "
            "counter: spare counter, ticket cloning: ticket signatures"
        ),
        items="signal cards, cable drums, possession hours, driver hours, radio licences, spare relays",
    ),
)
